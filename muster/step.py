"""The seconds of a training step, counted once more from a certificate, in fractions.

What each axis sends over each kind of link follows from hosts and rank order; how long that takes,
from the speeds in the file. docs/steptime.md has the model, docs/verify.md what is taken on trust:
the compute time, the speeds, and what of an axis is parameters and gradients. Standard library
alone; it shares no code with the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from muster.bound import Refused
from muster.certificate import Certificate, groups_of

CLOSE = Fraction(1, 10**9)  # so near, as a share, must a claimed time be
TINY_S = Fraction(1, 10**12)  # for each axis: the engine counts whole bytes inside hosts
MEGASECOND = 10**6  # speeds are bytes in so many seconds

Sent = dict[int, Fraction]


class UplinkSpeeds(NamedTuple):
    """Speeds of the uplinks of one tier. `domain`: of each host. `speed`: of each domain, bytes in
    a megasecond."""

    domain: list[int]
    speed: list[int]


@dataclass(frozen=True)
class LinkSpeeds:
    """`inside`: NVLink of each host; `cards`: its network cards. `joined`: hosts that reach each
    other by NVLink have one number. `uplinks`: of the tiers."""

    inside: list[int]
    cards: list[int]
    joined: list[int]
    uplinks: list[UplinkSpeeds]

    @property
    def has_racks(self) -> bool:
        return self.joined != list(range(len(self.joined)))


class CountedStep:
    """The step of the job of a certificate."""

    def __init__(self, case: Certificate, facts: dict[str, Any]) -> None:
        self.case, self.facts = case, facts
        self.compute = self.hiding = Fraction(*facts["compute_s"])
        inside, cards, joined = case.speeds
        self.links = LinkSpeeds(
            inside, cards, joined, [UplinkSpeeds(*each) for each in case.uplinks]
        )

    def seconds(self, hosts: list[int]) -> Fraction:
        """Return seconds of a step on each block's host. Raises: Refused over a dead link."""
        return self._count([host for host in hosts for _ in range(self.case.gpus)], self.links)

    def _count(self, by_rank: list[int], links: LinkSpeeds) -> Fraction:
        """Return seconds of a step on each rank's host. Raises: Refused over a dead link."""
        chain, waited = self._chain(), Fraction(0)
        hops, busy = self._hops(by_rank, links), dict[int, Fraction]()
        beside = [] if chain is None else over_links(chain, by_rank, links)
        for axis in self.case.traffic:
            loads = over_links(axis, by_rank, links)
            times = [longest(sent, speed) for sent, speed in loads]
            add(busy, times)
            if beside and axis is not chain and self.counts_stages:
                each = [self._exposed(axis["axis"], times[0], [])]
                each += self._on_links(axis, by_rank, links, loads[1][0], beside)
                waited += max(each)
            else:
                waited += self._exposed(axis["axis"], max(times), hops)
        return self._total(waited, busy.values())

    @property
    def counts_stages(self) -> bool:
        """Whether stages are told apart on links: of pipelines of jobs without a model."""
        return self.facts["pipeline"]["stages"] > 1 and bool(self.facts["last_layer"][0])

    def _on_links(
        self,
        axis: dict[str, Any],
        by_rank: list[int],
        links: LinkSpeeds,
        cards: Sent,
        beside: list[tuple[Sent, list[int]]],
    ) -> Iterator[Fraction]:
        """Yield the seconds for which a step waits on each network card and uplink.

        `cards`: bytes over the first. `beside`: messages between stages, over each layer.
        """
        chain = self._chain()
        stages: int = self.facts["pipeline"]["stages"]
        stride = chain["stride"] if chain else 1
        sent, speed = beside[1]
        for host, out in cards.items():
            yield self._shared(axis["axis"], [out], sent.get(host, Fraction(0)), speed[host])
        for layer, (sent, speed) in zip(links.uplinks, beside[2:], strict=True):
            at = [
                layer.domain[host] * stages + i // stride % stages for i, host in enumerate(by_rank)
            ]
            by_stage = egress(axis, at)
            for domain in {each // stages for each in at}:
                outs = [by_stage.get(domain * stages + s, Fraction(0)) for s in range(stages)]
                yield self._shared(axis["axis"], outs, sent.get(domain, Fraction(0)), speed[domain])

    def _shared(self, axis: str, outs: list[Fraction], hops: Fraction, speed: int) -> Fraction:
        """Return the seconds for which a step waits on a link.

        `outs`: bytes of the groups of each stage. `hops`: bytes of messages between stages.
        """
        if not any(outs):
            return Fraction(0)
        alone = [out * MEGASECOND / speed for out in outs]
        bubble = idle_share(self.facts["pipeline"]) * self.hiding
        paced, most = self.hiding + bubble, max(alone)
        if not self.facts["state"].get(axis, (0, 1))[0]:
            others = sum(alone) - most
            return self._exposed(
                axis, most + min(others, most * min(Fraction(1), others / paced)), []
            )
        free = max(Fraction(0), 1 - hops * MEGASECOND / speed / paced)
        share = Fraction(*self.facts["exposed"].get("dp", (0, 1)))
        waited, together = Fraction(0), Fraction(0)
        for stage, seconds in enumerate(alone):  # a later one has as much more time
            together += seconds
            later = bubble * Fraction(stage, self.facts["pipeline"]["stages"] - 1)
            hidden = free * (self._window() + later)
            rest = max(Fraction(0), (1 - share) * together - hidden)
            waited = max(waited, share * together + rest)
        return waited

    def _chain(self) -> dict[str, Any] | None:
        """Return the pipeline, if there is one."""
        chains = [axis for axis in self.case.traffic if axis["pattern"] == "chain"]
        return chains[0] if chains else None

    def _hops(self, by_rank: list[int], links: LinkSpeeds) -> list[Fraction]:
        """Seconds of all messages between a stage and the next, there and back, where only they
        are sent; between the last and the first at the end, where chunks wrap."""
        if (chain := self._chain()) is None:
            return []
        own, joined = list(range(len(links.joined))), links.joined
        layers = [(own, links.inside), (own, links.cards), *links.uplinks]
        spent = []
        for hop in range(chain["size"] - 1 + bool(chain["wrap_bytes"])):
            many = Counter[tuple[int, int, int]]()  # by layer, domain and end
            for ranks in groups_of(chain, [*range(len(by_rank))]):
                ends = by_rank[ranks[hop]], by_rank[ranks[(hop + 1) % len(ranks)]]
                is_out = joined[ends[0]] != joined[ends[1]]
                for layer, (domain, _) in enumerate(layers):
                    a, b = domain[ends[0]], domain[ends[1]]
                    if is_out == (layer > 0) and (layer < 2 or a != b):
                        many.update([(layer, a, 0), (layer, b, 1)])
            size = Fraction(chain["wrap_bytes" if hop == chain["size"] - 1 else "edge_bytes"])
            times = [longest({at: size * n}, layers[k][1]) for (k, at, _), n in many.items()]
            spent.append(max(times))
        return spent

    def _least_hops(self, most: int, inside: int, cards: int) -> Fraction:
        """Seconds of all hops at least: out of racks of `most` ranks by network cards, else by
        NVLink, each of all pipelines that a host holds."""
        if (chain := self._chain()) is None:
            return Fraction(0)
        gpus, stride, size = self.case.gpus, chain["stride"], chain["size"]
        if stride % gpus and (gpus % stride or stride * size % gpus):
            return Fraction(0)
        out = -(-size // most) - 1
        sent = Fraction(chain["edge_bytes"] * (gpus // max(1, gpus // stride)) * MEGASECOND)
        return sent * (Fraction(size - 1 - out, max(inside, cards)) + Fraction(out, cards))

    def least(self) -> Fraction:
        """Bound the step on any free hosts: the network never holds it up, with compute of the
        fastest GPU hidden behind that of the slowest."""
        for name, key in (("compute", "least_compute_s"), ("hiding", "most_compute_s")):
            setattr(self, name, Fraction(*self.facts[key]))
        blocks, gpus = self.case.blocks, self.case.gpus
        own = [block for block in range(blocks) for _ in range(gpus)]
        inside = max(self.links.inside[host] for host in self.case.free)
        cards = max(self.links.cards[host] for host in self.case.free)
        room = Counter(self.links.joined[host] for host in self.case.free)
        most = gpus * max(room.values())
        if most == gpus:
            alike = LinkSpeeds([inside] * blocks, [cards] * blocks, list(range(blocks)), [])
            return self._count(own, alike)
        waited, busy = Fraction(0), dict[int, Fraction]()
        for axis in self.case.traffic:  # in NVLink racks it stays or leaves, but all of it goes
            out, sent = egress(axis, own), ranks_sent(axis, own)
            within = longest(minus(sent, out), [inside] * blocks)
            both = sum(sent.values()) / Fraction(blocks, MEGASECOND) / (inside + cards)
            beyond = self._leaves_racks(axis, most) / cards
            add(busy, (within, beyond))
            chain = axis["pattern"] == "chain"
            hops = self._least_hops(most, inside, cards) if chain else Fraction(0)
            waited += self._exposed(axis["axis"], max(within, both, beyond, hops), [])
        return self._total(waited, busy.values())

    def _leaves_racks(self, axis: dict[str, Any], most: int) -> Fraction:
        """Bytes in a megasecond that a host sends out of its rack, of `most` ranks, on average."""
        size, edge = axis["size"], Fraction(axis["edge_bytes"])
        racks = -(-size // most)
        by_pattern = {
            "ring": edge * racks,
            "chain": edge * (racks - 1),
            "hierarchical": edge * size / (size - 1) * (racks - 1),
            "all_to_all": edge * size * (size - most),
        }
        groups = self.case.ranks // size
        sent: Fraction = by_pattern[axis["pattern"]] * groups * MEGASECOND / self.case.blocks
        return sent if racks > 1 else Fraction(0)

    def _total(self, waited: Fraction, busy: Iterable[Fraction]) -> Fraction:
        bubble = idle_share(self.facts["pipeline"])
        return max(self.compute * (1 + bubble) + waited, *busy, Fraction(0))

    def _exposed(self, axis: str, seconds: Fraction, hops: list[Fraction]) -> Fraction:
        """Return the part of an axis' seconds for which the step waits."""
        if axis == "pp":
            return self._waited_hops(hops) if hops else self._least_hop_share() * seconds
        state = Fraction(*self.facts["state"].get(axis, (0, 1))) * seconds
        exposed = self.facts["exposed"]
        waited = Fraction(*exposed.get(axis, (1, 1))) * (seconds - state)
        share = Fraction(*exposed.get("dp", (0, 1)))
        return waited + share * state + max(Fraction(0), (1 - share) * state - self._window())

    def _waited_hops(self, hops: list[Fraction]) -> Fraction:
        """The first micro-batch meets all hops, there and back, in each chunk; the others wait for
        those behind a stage by turns, as many as are under way there."""
        pipeline = self.facts["pipeline"]
        stages: int = pipeline["stages"]
        chunks: int = pipeline["chunks"]
        passes = chunks * int(pipeline["micro_batches"])
        steady = Fraction(0)
        for s in range(stages - 1):
            behind = sum(hops[s : stages - 1], Fraction(0)) / passes
            if chunks == 1:
                steady = max(steady, behind / (stages - s))
            else:
                idle = behind - (stages - s - 1) * self.hiding / passes
                steady = max(steady, idle / (2 * (stages - s) - 1))
        return sum(hops, Fraction(0)) * chunks / passes + (passes - 1) * steady

    def _least_hop_share(self) -> Fraction:
        pipeline = self.facts["pipeline"]
        first = Fraction(1, pipeline["micro_batches"])
        steady = (1 - first) / Fraction(pipeline["stages"])
        return first if pipeline["chunks"] > 1 else Fraction(first + steady)

    def _window(self) -> Fraction:
        """Compute behind which parameters and gradients hide."""
        pipeline = self.facts["pipeline"]
        chunks, many = pipeline["chunks"], pipeline["micro_batches"]
        passes = (
            (chunks - 1) * min(pipeline["stages"], many) + 1 - Fraction(*self.facts["last_layer"])
        )
        part = passes / (chunks * many) if self.facts["sync"] == "step" else Fraction(1)
        return self.hiding * part * (Fraction(2, 3) if self.facts["gradients_alone"] else 1)


def idle_share(pipeline: dict[str, Any]) -> Fraction:
    """The bubble, as a share of compute."""
    stages, many = pipeline["stages"], pipeline["micro_batches"]
    plain = Fraction(stages - 1, pipeline["chunks"] * many)
    match pipeline["schedule"]:
        case "dualpipe":
            return max(Fraction(0), Fraction(stages, 2) - 1) * Fraction(2, 3) / Fraction(many)
        case "zero_bubble":
            return plain / 3
    return plain


def check_step(case: Certificate, hosts: list[int]) -> tuple[Fraction, Fraction, Fraction] | None:
    """The step, what is confirmed of its bound and what the engine claims; None where the file
    has none. Raises: Refused."""
    facts, claim = case.job["step"], case.claims["step"]
    if (facts is None) != (claim is None):
        raise Refused("a step is claimed for a job that does not say what it computes, or none is")
    if facts is None or claim is None:
        return None
    step = CountedStep(case, facts)
    says, least, engine = (
        Fraction(*claim[key]) for key in ("seconds", "least_seconds", "engine_least_seconds")
    )
    counted = step.seconds(hosts)
    slack = TINY_S * len(case.traffic)
    if abs(says - counted) > CLOSE * counted + slack:
        raise Refused(f"step: {float(says):.9g} s are claimed, not {float(counted):.9g}")
    if not least <= engine <= says:
        raise Refused("bounds of the step fall, or pass it")
    if least and least > (follows := step.least()) * (1 + CLOSE) + slack:
        raise Refused(f"step bound: {float(least):.9g} s claimed, {float(follows):.9g} follow")
    return says, least, engine


def shown_step(content: dict[str, Any]) -> Fraction:
    """The bound on the step that can be confirmed of a certificate that is being written."""
    case = Certificate(content)
    return CountedStep(case, content["job"]["step"]).least()


def over_links(
    axis: dict[str, Any], by_rank: list[int], links: LinkSpeeds
) -> list[tuple[Sent, list[int]]]:
    """Return bytes over NVLink, network cards and uplinks of each tier, with their speeds."""
    joined = [links.joined[host] for host in by_rank]
    out = egress(axis, joined, by_rank) if links.has_racks else egress(axis, by_rank)
    loads = [(minus(ranks_sent(axis, by_rank), out), links.inside), (out, links.cards)]
    tiers = [([layer.domain[host] for host in by_rank], layer.speed) for layer in links.uplinks]
    return loads + [(egress(axis, at), speed) for at, speed in tiers]


def longest(sent: Sent, speed: list[int]) -> Fraction:
    """Seconds of the link that needs most."""
    most = Fraction(0)
    for at, out in sent.items():
        if out and not speed[at]:
            raise Refused("step: the gang sends over a link that is down")
        most = max(most, out * MEGASECOND / speed[at]) if out else most
    return most


def add(busy: dict[int, Fraction], times: Iterable[Fraction]) -> None:
    """Add each layer's busy time, by all axes together, to `busy`."""
    for layer, seconds in enumerate(times):
        busy[layer] = busy.get(layer, Fraction(0)) + seconds


def minus(sent: Sent, out: Sent) -> Sent:
    return {at: amount - out.get(at, 0) for at, amount in sent.items()}


def ranks_sent(axis: dict[str, Any], unit: list[int]) -> Sent:
    """Return the bytes that all ranks send, by the unit of each."""
    return egress(axis, list(range(len(unit))), unit)


def egress(axis: dict[str, Any], at: list[int], unit: list[int] | None = None) -> Sent:
    """Bytes of an axis that leave domains, by domain; or by `unit` of the ranks that send them.
    `at`: the domain of each rank."""
    n, w, pattern = axis["size"], axis["edge_bytes"], axis["pattern"]
    own, total = unit or at, Counter[tuple[int, int, int]]()  # by unit, and what is sent alike
    for ranks in groups_of(axis, [*range(len(at))]):
        if pattern in ("hierarchical", "all_to_all"):
            inside = Counter(at[rank] for rank in ranks)
            if len(inside) > 1:
                total.update((own[rank], len(inside), inside[at[rank]]) for rank in ranks)
        else:
            edges = doubled_edges(axis, ranks)
            total.update((own[a], weight, 0) for weight, a, b in edges if at[a] != at[b])
    sent = dict.fromkeys(own, Fraction(0))
    # Of Z domains of a hierarchical one each sends w n/(n-1) (Z-1)/Z, its ranks as much each.
    for (where, weight, inside_it), many in total.items():
        match pattern:
            case "hierarchical":
                each = Fraction(w * n * (weight - 1), (n - 1) * weight * inside_it)
            case "all_to_all":
                each = Fraction(w * (n - inside_it))
            case _:
                each = Fraction(weight, 2)
        sent[where] += many * each
    return sent


def doubled_edges(axis: dict[str, Any], ranks: list[int]) -> Iterator[tuple[int, int, int]]:
    """Twice the bytes from one rank to another: round a ring, or half each way along a chain."""
    if axis["pattern"] == "ring":
        yield from ((2 * axis["edge_bytes"], a, b) for a, b in pairwise([*ranks, ranks[0]]))
        return
    for a, b in pairwise(ranks):
        yield from ((axis["edge_bytes"], a, b), (axis["edge_bytes"], b, a))
    for a, b in ((ranks[0], ranks[-1]), (ranks[-1], ranks[0])):
        yield axis["wrap_bytes"], a, b
