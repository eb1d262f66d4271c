"""Who slows a gang: hosts, GPUs or uplinks that all slow measurements have in common.

A measurement is the time that some ranks took for something in a step: one rank for its part of the
computation, or the ranks of a group for a collective. Measurements of one kind and size are
compared with each other step by step, so that what slows all of them counts for nothing. The
placement says which host each rank is on and which uplinks a group crosses: that is the incidence
of group testing, of which each step is one more round.

    y   of each measurement: the median over steps of log(its time / the median of its kind)
    a candidate slows all measurements of a kind that it is part of, by the same factor

Candidates are taken one after the other, the one first that explains most (matching pursuit): the
sum of squares, in units of the noise, by which y is smaller once the effect is taken away. It must
be more than chance would give the best of so many. Confidence is its likelihood beside that of all
other candidates, so two that were always measured together share it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.structs import struct

SURE = 0.9  # confidence with which a host is reported
LEAST_SLOWER = 0.02  # a smaller effect is not worth a name
LEAST_PEERS = 4  # measurements of a kind in a step; fewer say nothing of each other
_LEAST_NOISE = 0.002
_CHANCE = 9.0  # beyond 2 ln(candidates): once in some hundred healthy gangs
_MOST_FOUND = 20


class SuspectKind(StrEnum):
    """Kind of thing that may be slow."""

    HOST = "host"
    GPU = "gpu"
    UPLINK = "uplink"


class Measurement(NamedTuple):
    """How long some ranks took. `ranks`: ascending. `kind`: only those of one kind and number of
    ranks are compared."""

    step: int
    ranks: tuple[int, ...]
    seconds: float
    kind: str = ""


@struct(frozen=True, slots=True)
class MeasuredGang:
    """A gang whose ranks are measured. `hosts`: in block order, of `ranks_per_host` ranks each.
    `uplinks`: by name, the hosts behind each. `gpus`: those of the ranks of a host, where they have
    a part of it."""

    hosts: tuple[str, ...]
    ranks_per_host: int
    uplinks: Mapping[str, frozenset[str]]
    gpus: tuple[int, ...] = ()

    def host_of(self, rank: int) -> str:
        """Return the host of a rank. Raises: IndexError."""
        return self.hosts[rank // self.ranks_per_host]

    def gpu_of(self, rank: int) -> int:
        """Return the number of the rank's GPU on its host."""
        local = rank % self.ranks_per_host
        return self.gpus[local] if self.gpus else local


@struct(frozen=True, slots=True)
class Suspect:
    """A host, GPU or uplink that seems to slow its gang. `name`: a host or the domain of an uplink.
    `gpu`: of the host, by number. `at`: the kind of the measurements that it slows. `slower`: 0.12
    for 12 %. `confidence`: 0 to 1. `seen`: in how many measurements, over so many `steps`."""

    kind: SuspectKind
    name: str
    gpu: int | None
    at: str
    slower: float
    confidence: float
    seen: int
    steps: int

    def detail(self, job: str) -> str:
        """Text for a report on the suspect."""
        return f"{self.slower:.0%} slower at {self.at or 'its part'} of {job}"


Candidate = tuple[SuspectKind, str, int | None, str]
Numbers = npt.NDArray[np.float64]


def stragglers(gang: MeasuredGang, measurements: Iterable[Measurement]) -> list[Suspect]:
    """Return suspects, the slowest first; empty: none. Cost: O(measurements + candidates x groups).
    Raises: IndexError on a rank that the gang does not have."""
    groups, y, noise, steps = _summed_up(measurements)
    candidates = _candidates(gang, groups)
    names = list(candidates)
    members = [np.array(sorted(candidates[name]), np.intp) for name in names]
    least = _CHANCE + 2 * np.log(max(2, len(names)))
    suspects: list[Suspect] = []
    rest = y.copy()
    while members and len(suspects) < _MOST_FOUND:
        effects = np.array([np.median(rest[at]) for at in members])
        gains = np.array(
            [_gain(rest[at], noise[at], f) for at, f in zip(members, effects, strict=True)]
        )
        best = int(np.argmax(gains))
        if gains[best] < least:
            break
        # Beyond some differences of likelihood nothing is left of the others.
        weights = np.exp(np.clip((gains - gains[best]) / 2, -700, 0))
        at, effect = members[best], float(effects[best])
        slower = float(np.expm1(effect))
        confidence = float(1 / weights[gains > 0].sum())
        seen = len(at), int(steps[at].max())
        suspects.append(Suspect(*names[best], slower, confidence, *seen))
        rest[at] = np.minimum(rest[at], np.maximum(rest[at] - effect, 0))
    return sorted(suspects, key=lambda each: (-each.slower, each.name))


def worth_a_report(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Return the suspected hosts that are slow with some confidence; uplinks are left out."""
    return [
        suspect
        for suspect in suspects
        if suspect.kind is not SuspectKind.UPLINK and suspect.confidence >= SURE
    ]


def _gain(rest: Numbers, noise: Numbers, effect: float) -> float:
    """How much smaller the sum of squares is without the effect, in units of the noise."""
    if effect < np.log1p(LEAST_SLOWER):
        return 0.0
    return float((((rest**2) - (rest - effect) ** 2) / noise**2).sum())


Key = tuple[str, tuple[int, ...]]


def _summed_up(
    measurements: Iterable[Measurement],
) -> tuple[list[Key], Numbers, Numbers, npt.NDArray[np.intp]]:
    """Each (kind, ranks), with its y, the noise of y, and over how many steps."""
    by_round: dict[tuple[str, int, int], list[Measurement]] = defaultdict(list)
    for each in measurements:
        by_round[each.kind, len(each.ranks), each.step].append(each)
    logs: dict[Key, list[float]] = defaultdict(list)
    for (kind, _, _), peers in by_round.items():
        if len(peers) < LEAST_PEERS:
            continue
        times = np.log([max(each.seconds, 1e-12) for each in peers])
        for each, log in zip(peers, times - np.median(times), strict=True):
            logs[kind, each.ranks].append(float(log))
    keys = list(logs)
    y = np.array([np.median(logs[key]) for key in keys])
    noise = np.zeros(len(keys))
    of_class: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, (kind, ranks) in enumerate(keys):
        of_class[kind, len(ranks)].append(place)
    for places in of_class.values():
        spread = 1.4826 * float(np.median(np.abs(y[places] - np.median(y[places]))))
        noise[places] = max(spread, _LEAST_NOISE)
    steps = np.array([len(logs[key]) for key in keys], np.intp)
    return keys, y, noise, steps


def _candidates(gang: MeasuredGang, groups: Sequence[Key]) -> dict[Candidate, set[int]]:
    """For each candidate: the measurements that it is part of. A GPU is told from its host where
    another GPU of the host was measured without it."""
    of_host: dict[tuple[str, str], set[int]] = defaultdict(set)
    of_rank: dict[tuple[int, str], set[int]] = defaultdict(set)
    of_uplink: dict[tuple[str, str], set[int]] = defaultdict(set)
    domains: dict[str, list[str]] = defaultdict(list)
    for name, inside in gang.uplinks.items():
        for host in inside:
            domains[host].append(name)
    for place, (kind, ranks) in enumerate(groups):
        hosts = {gang.host_of(rank) for rank in ranks}
        for rank in ranks:
            of_rank[rank, kind].add(place)
        for host in hosts:
            of_host[host, kind].add(place)
        for name in {name for host in hosts for name in domains[host]}:
            if not hosts <= gang.uplinks[name]:
                of_uplink[name, kind].add(place)
    made: dict[Candidate, set[int]] = {
        (SuspectKind.HOST, host, None, kind): places for (host, kind), places in of_host.items()
    }
    for (rank, kind), places in of_rank.items():
        host = gang.host_of(rank)
        if places != of_host[host, kind]:
            made[SuspectKind.GPU, host, gang.gpu_of(rank), kind] = places
    for (name, kind), places in of_uplink.items():
        made[SuspectKind.UPLINK, name, None, kind] = places
    return made


def as_mapping(suspect: Suspect) -> dict[str, Any]:
    """Return the suspect as JSON values."""
    return {
        "kind": suspect.kind.value,
        "name": suspect.name,
        "gpu": suspect.gpu,
        "at": suspect.at,
        "slower": round(suspect.slower, 4),
        "confidence": round(suspect.confidence, 4),
        "measurements": suspect.seen,
        "steps": suspect.steps,
    }
