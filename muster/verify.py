"""Checks a certificate of a placement in whole numbers, by the standard library alone.

    python -m muster.verify certificate.json

It shares no code with the engine that wrote the certificate: hosts are counted, the cut is counted
rank by rank, and what no placement cuts less than follows from the numbers in the file (`bound`).
docs/verify.md describes both.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product, zip_longest
from typing import Any

from muster.bound import CutBound, Refused, grid_of
from muster.certificate import SEALED, Certificate, Malformed, digest, groups_of
from muster.step import check_step

__all__ = ["Malformed", "Refused", "Report", "verify"]

GIVEN = "the fabric, its free hosts and the bytes of each axis are as the file has them"
OF_STEP = "so are its compute of {:.9g} s a step, speeds of links and what hides behind compute"
DECIDED = (
    "a server decided it at {time}, by a {kind}: attempt {attempt}, version {version} of its log"
)
SUPPOSED = "a server answered it to a dry run at {time}, on version {version} of its log"
BOUNDS_OF_STEP = ("least_seconds", "engine_least_seconds")
UNBOUNDED = {
    "swap": "no bound: a swap replaces some hosts, and every other block stays where it was",
    "resize": "no bound: a resize adds or takes replicas, and the others stay where they were",
}


@dataclass(frozen=True)
class Report:
    """Sentences on what was checked, what is taken on trust, and what the certificate does not
    claim. `bounds`: of each tier the bytes that are confirmed, and bytes that the engine claims;
    `step`: the seconds of a step, of its bound what is confirmed and what the engine claims;
    `is_whole`: of all bounds these are the same."""

    name: str
    checked: list[str]
    trusted: list[str]
    bounds: dict[str, tuple[int, int]]
    unproved: list[str]
    step: tuple[float, float, float] | None = None

    @property
    def lines(self) -> list[str]:
        """The sentences, each with what it is of."""
        said = (("checked ", self.checked), ("trusted ", self.trusted), ("unproved", self.unproved))
        return [f"  {kind} {each}" for kind, sentences in said for each in sentences]

    @property
    def is_whole(self) -> bool:
        both = [*self.bounds.values(), *([self.step[1:]] if self.step else [])]
        return not self.unproved and all(least == claimed for least, claimed in both)


def verify(certificate: Any) -> Report:
    """Raises: Malformed, Refused."""
    case = _Case(certificate)
    for part in SEALED:
        if certificate["digests"][part] != digest(certificate[part]):
            raise Refused(f"{part} does not have the digest that the certificate says")
    return case.report()


class _Case(Certificate):
    """A certificate under test."""

    def report(self) -> Report:
        self._check_hosts()
        spares = len(self.claims["spares"])
        trusted, bounds = [GIVEN], dict[str, tuple[int, int]]()
        on = f"{self.blocks:,} hosts of {self.fabric}"
        checked = [f"{self.ranks:,} ranks on {on}, {spares:,} spares"]
        cuts = {each["tier"]: self._checked_cut(each) for each in self.claims["cuts"]}
        checked += [f"{tier} cut: {cut:,} bytes a step" for tier, cut in cuts.items()]
        for each in self.claims["bounds"]:
            tier, least, claimed = each["tier"], each["bytes"], each["engine_bytes"]
            if not least <= claimed <= cuts[tier]:
                raise Refused(f"bounds of {tier} fall, or pass the cut")
            if (proved := self._proved(tier, each["proof"], cuts)) < least:
                raise Refused(f"{tier} bound: {least:,} bytes are claimed, {proved:,} follow")
            bounds[tier] = least, claimed
            if least:
                inner = "" if tier == self.tiers[0] else ", where nothing further out is cut"
                way = f"by {each['proof']['by']}{inner}"
                checked.append(f"{tier} bound: {least:,} bytes a step, {way}")
            if least < claimed:
                trusted.append(f"{tier} bound: from there to {claimed:,} bytes a step")
        step = self._step(checked, trusted)
        unproved = self._decided(trusted)
        return Report(self.job["name"], checked, trusted, bounds, unproved, step)

    def _step(self, checked: list[str], trusted: list[str]) -> tuple[float, float, float] | None:
        """The seconds of a step and its bounds, where the job says what it computes."""
        if (three := check_step(self, self.hosts)) is None:
            return None
        seconds, least, engine = map(float, three)
        checked.append(f"step: {seconds:.6g} s, on an idle network")
        if least:
            checked.append(f"step bound: {least:.6g} s, as if all hosts were on one switch")
        if least < engine:
            trusted.append(f"step bound: from there to {engine:.6g} s")
        num, den = self.job["step"]["compute_s"]
        trusted.insert(1, OF_STEP.format(num / den))
        return seconds, least, engine

    def _decided(self, trusted: list[str]) -> list[str]:
        """Say what a server decided about the placement; the certificate does not claim that, so it
        joins what is `trusted`."""
        decision = self.claims.get("decision")
        if decision is None:
            return []
        form = SUPPOSED if decision["kind"] == "dry run" else DECIDED
        trusted.append(form.format_map(decision))
        unbounded = UNBOUNDED.get(decision["kind"])
        if unbounded is None:
            return [] if self.claims["bounds"] or not self.tiers else ["no bound: none was found"]
        step = self.claims["step"]
        if self.claims["bounds"] or (step and any(step[key][0] for key in BOUNDS_OF_STEP)):
            raise Refused(f"a bound is claimed for a {decision['kind']}, which keeps other blocks")
        return [unbounded]

    def _check_hosts(self) -> None:
        """Every rank has one free host of the job's kind, and constraints are kept."""
        names = self.claims["hosts"] + self.claims["spares"]
        if unknown := [name for name in names if name not in self.number]:
            raise Refused(f"{self.fabric} has no host {unknown[0]}")
        both = [self.number[name] for name in names]
        self.hosts = both[: len(self.claims["hosts"])]
        if len(self.hosts) != self.blocks or len(set(both)) != len(both):
            raise Refused(f"{self.blocks:,} hosts are needed, each once")
        if taken := [name for name in names if self.number[name] not in self.free]:
            raise Refused(f"host {taken[0]} is not free, or not of the kind that the job needs")
        lies_in = {tier: {domain[host] for host in both} for tier, domain in self.domain.items()}
        if (same := self.job["same"]) and len(lies_in[same]) > 1:
            raise Refused(f"the gang must lie in one {same}")
        if (most := self.job["max_zones"]) and len(lies_in[self.tiers[0]]) > most:
            raise Refused(f"the gang may lie in {most} outermost domains")
        for each in self.barred:
            if each["domain"] in lies_in[each["tier"]] and len(lies_in[each["tier"]]) > 1:
                raise Refused(f"the gang crosses an uplink of a {each['tier']} that is closed")

        for each in self.job["within"] + [{"axis": "", "tier": tier} for tier in self.tiers[-1:]]:
            at = self._domain_by_rank(each["tier"])
            axes = [t for t in self.traffic if t["axis"].split("_")[0] == each["axis"]]
            groups = [group for t in axes for group in groups_of(t, at)]
            if not each["axis"] and (size := self.job["segment"] * self.gpus):
                groups = [at[first : first + size] for first in range(0, len(at), size)]
            if any(len(set(group)) > 1 for group in groups):
                raise Refused(f"groups or segments that must lie in one {each['tier']} do not")
        for name in self.roles:
            self._check_role(name)

    def _check_role(self, name: str) -> None:
        """The role, its groups and its segments lie where they must, beside others and apart."""
        role = self.roles[name]
        together = [(each["tier"], [name, *each["roles"]]) for each in role["beside"]]
        for tier, names in [*together, *([(role["same"], [name])] if role["same"] else [])]:
            if len(set().union(*(self._role_lies_in(each, tier) for each in names))) > 1:
                raise Refused(f"{' and '.join(names)} must lie in one {tier}")
        for each in role["avoid"]:
            for other in each["roles"]:
                shared = self._role_lies_in(name, each["tier"])
                if shared & self._role_lies_in(other, each["tier"]):
                    raise Refused(f"{name} and {other} must share no {each['tier']}")
        segment = {"size": role["segment"] * self.gpus, "stride": 1}
        segments = [{**segment, "tier": tier} for tier in self.tiers[-1:] if role["segment"]]
        for each in role["within"] + segments:
            at = self._domain_by_rank(each["tier"])
            ranks = {"first": role["first"], "ranks": role["ranks"], "pattern": "ring"}
            if any(len(set(group)) > 1 for group in groups_of({**each, **ranks}, at)):
                raise Refused(f"groups or segments of {name} must lie in one {each['tier']}")

    def _role_lies_in(self, name: str, tier: str) -> set[int]:
        """Return the domains of a tier that a role lies in."""
        first, ranks = self.roles[name]["first"], self.roles[name]["ranks"]
        own = self.hosts[first // self.gpus : (first + ranks) // self.gpus]
        return {self.domain[tier][host] for host in own}

    def _domain_by_rank(self, tier: str) -> list[int]:
        """Return the domain that each rank lies in; its host where hosts are the tier."""
        domain = self.domain.get(tier, list(range(len(self.number))))
        return [domain[host] for host in self.hosts for _ in range(self.gpus)]

    def _checked_cut(self, claim: dict[str, Any]) -> int:
        by_rank = self._domain_by_rank(claim["tier"])
        counted = {each["axis"]: crossing(each, by_rank) for each in self.traffic}
        by_axis = {axis: sent for axis, sent in counted.items() if sent}
        if (claim["bytes"], claim["by_axis"]) != (sum(by_axis.values()), by_axis):
            raise Refused(f"{claim['tier']} cut: {claim['bytes']:,} bytes claimed, not {by_axis}")
        return int(claim["bytes"])

    def _proved(self, tier: str, proof: dict[str, Any], cuts: dict[str, int]) -> int:
        """Bytes that no placement on the free hosts goes below on a tier; on an inner one, while
        it cuts nothing on those outside."""
        if proof["by"] == "nothing":
            return 0
        if self.has_roles:
            raise Refused(f"{tier} bound: a gang of roles has no proof that is known here")
        grid, room = grid_of(self.traffic, self.gpus), self._room(tier)
        if tier != self.tiers[0]:
            if any(cuts[outer] for outer in self.tiers[: self.tiers.index(tier)]):
                raise Refused(f"{tier} bound: a tier further out is cut")
            if (grid.rows > 1 and not grid.row_weight) or not all(n.weight for n in grid.lines):
                raise Refused(f"{tier} bound: blocks that send each other nothing may lie apart")
        if sum(room) < self.blocks:
            raise Refused("there are fewer free hosts than the job needs")
        doubled = CutBound(grid, room, proof).bound()
        return -(-doubled * grid.unit.numerator // (2 * grid.unit.denominator))

    def _room(self, tier: str) -> list[int]:
        """Free hosts of the domains of a tier, the largest first: of an inner one at least as many
        as in any domain of the next one outside that has room for all."""
        domain, depth = self.domain[tier], self.tiers.index(tier)
        free = Counter(domain[host] for host in self.free)
        if not depth:
            return sorted(free.values(), reverse=True)[: self.job["max_zones"] or None]
        outer, below = self.domain[self.tiers[depth - 1]], dict[int, list[int]]()
        of = {domain[host]: outer[host] for host in self.free}
        for each, many in free.items():
            below.setdefault(of[each], []).append(many)
        fitting = [sorted(m, reverse=True) for m in below.values() if sum(m) >= self.blocks]
        return [max(each) for each in zip_longest(*fitting, fillvalue=0)]


def crossing(axis: dict[str, Any], at: list[int]) -> int:
    """Bytes of an axis between ranks in different domains. `at`: the domain of each rank."""
    size, edge, total = axis["size"], axis["edge_bytes"], 0
    for group in groups_of(axis, at):
        steps, wraps = sum(a != b for a, b in pairwise(group)), group[0] != group[-1]
        match axis["pattern"]:
            case "ring":
                total += edge * (steps + wraps)
            case "chain":
                total += edge * steps + axis["wrap_bytes"] * wraps
            case "hierarchical":
                total += edge * (len(set(group)) - 1)
            case "tree":
                edges = tree_edges(size, axis["node"])
                total += edge * sum(group[a] != group[b] for a, b in edges)
            case "pairs":
                there = Counter(group[axis["ranks"] :])
                total += edge * sum(there.total() - there[own] for own in group[: axis["ranks"]])
            case _:
                total += edge * (size * size - sum(n * n for n in Counter(group).values()))
    # Of a vector S, of which a ring's edge carries 2 (n-1)/n S, a hierarchy sends 2 S for each
    # domain more, and each edge of a tree S / node there and back.
    parts = {"hierarchical": 1, "tree": 2 * axis.get("node", 1)}.get(axis["pattern"])
    return total if parts is None else -(-total * size // (parts * (size - 1)))


def tree_edges(size: int, node: int) -> Iterator[tuple[int, int]]:
    """Yield both ends of each edge of NCCL's two trees, once for each of the `node` ranks of a host
    that take turns as its head: between heads, and along the chain that ends at a head."""
    nodes = size // node
    for head, is_second, own in product(range(node), (False, True), range(nodes)):
        low = own & -own
        up = (own ^ low) | (low << 1)
        both = (own, up if up < nodes else own ^ low)
        if is_second and nodes % 2:
            both = (both[0] + 1) % nodes, (both[1] + 1) % nodes
        elif is_second:
            both = nodes - 1 - both[0], nodes - 1 - both[1]
        if own:
            yield both[0] * node + head, both[1] * node + head
        first = both[0] * node
        for step in range(head, head + node - 1):
            yield first + step % node, first + (step + 1) % node


def main() -> int:
    """Exit code: 0 confirmed, 1 refused, 2 no certificate."""
    path = " ".join(sys.argv[1:])
    try:
        with open(path, encoding="utf-8") as file:
            report = verify(json.load(file))
    except (OSError, ValueError, RecursionError, Malformed) as error:
        sys.stderr.write(f"{path}: {error}\n")
        return 2
    except Refused as error:
        sys.stdout.write(f"refused: {error}\n")
        return 1
    sys.stdout.write("\n".join([f"confirmed: {report.name}", *report.lines]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
