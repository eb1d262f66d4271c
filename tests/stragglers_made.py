"""Gangs of which it is known who is slow: the ground truth for detection.

python -m tests.stragglers_made        the table of docs/stragglers.md
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scheduler.observe.stragglers import MeasuredGang, Measurement, Suspect, SuspectKind, stragglers

GPUS, STEPS = 8, 30


@dataclass(frozen=True, slots=True)
class Case:
    """`truth`: kind, name, gpu of what is slow."""

    gang: MeasuredGang
    measurements: list[Measurement]
    truth: set[tuple[SuspectKind, str, int | None]]


def gang(hosts: int, per_zone: int) -> MeasuredGang:
    names = tuple(f"h{number:03}" for number in range(hosts))
    zones = {
        f"z{first // per_zone}": frozenset(names[first : first + per_zone])
        for first in range(0, hosts, per_zone)
    }
    return MeasuredGang(names, GPUS, zones)


def case(seed: int, hosts: int, slower: float, noise: float, *, groups: bool) -> Case:
    """One to three of hosts, GPUs and, where groups are measured, uplinks are slow. Ranks compute
    `noise` apart; a group waits for its slowest member and the slowest uplink that it crosses."""
    rng = np.random.default_rng(seed)
    made = gang(hosts, max(2, hosts // 4))
    truth: set[tuple[SuspectKind, str, int | None]] = set()
    kinds = [SuspectKind.HOST, SuspectKind.GPU, *([SuspectKind.UPLINK] if groups else [])]
    for _ in range(rng.integers(1, 4)):
        kind = kinds[rng.integers(len(kinds))]
        host = made.hosts[rng.integers(hosts)]
        if kind is SuspectKind.UPLINK and any(each is kind for each, _, _ in truth):
            continue  # of two slow zones out of four most pairs are slow: nobody is then
        if kind is SuspectKind.UPLINK:
            truth.add((kind, list(made.uplinks)[rng.integers(len(made.uplinks))], None))
        elif not any(name == host for _, name, _ in truth):
            gpu = int(rng.integers(GPUS)) if kind is SuspectKind.GPU else None
            truth.add((kind, host, gpu))
    return Case(made, list(_measured(rng, made, truth, slower, noise, groups=groups)), truth)


def _measured(
    rng: np.random.Generator,
    made: MeasuredGang,
    truth: set[tuple[SuspectKind, str, int | None]],
    slower: float,
    noise: float,
    *,
    groups: bool,
) -> Iterator[Measurement]:
    world = len(made.hosts) * GPUS
    factor = np.ones(world)
    for rank in range(world):
        host = made.host_of(rank)
        if (SuspectKind.HOST, host, None) in truth or (SuspectKind.GPU, host, rank % GPUS) in truth:
            factor[rank] = 1 + slower
    slow_links = {name for kind, name, _ in truth if kind is SuspectKind.UPLINK}
    every = [(a, b) for a in range(len(made.hosts)) for b in range(a)]
    picked = rng.permutation(len(every))[: 4 * len(made.hosts)] if groups else ()
    pairs = [(every[at][1] * GPUS, every[at][0] * GPUS) for at in picked]
    for step in range(STEPS):
        weather = rng.lognormal(0, 0.05)  # what all ranks have in common
        times = factor * weather * rng.lognormal(0, noise, world)
        for rank in range(world):
            yield Measurement(step, (rank,), float(times[rank]), "compute")
        for ranks in pairs:
            hosts = {made.host_of(rank) for rank in ranks}
            crossed = {n for n, inside in made.uplinks.items() if hosts & inside and hosts - inside}
            link = 1 + slower if crossed & slow_links else 1.0
            # A collective begins when all are there, so members count by their link alone.
            yield Measurement(
                step, ranks, float(0.3 * weather * link * rng.lognormal(0, noise)), "send"
            )


def keys(found: list[Suspect]) -> set[tuple[SuspectKind, str, int | None]]:
    return {(each.kind, each.name, each.gpu) for each in found if each.confidence >= 0.5}


def quality(cases: list[Case]) -> tuple[float, float]:
    """Precision and recall over these."""
    right = named = there = 0
    for each in cases:
        found = keys(stragglers(each.gang, each.measurements))
        right += len(found & each.truth)
        named += len(found)
        there += len(each.truth)
    return right / max(1, named), right / max(1, there)
