"""What is wrong with a placement, whoever made it.

Commit, the tests and the simulator all ask here; no solver is trusted.
"""

from __future__ import annotations

from math import isclose

from placement.fabric import hostset
from placement.fabric.constraints import broken, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.objective.step_time import step_time
from placement.workload.request import Placement, Request
from placement.workload.segments import parted

SAME = 1e-9  # of a step: sums may be taken in another order


@with_gang_view
def violations(fabric: Fabric, free: HostSet, request: Request, placement: Placement) -> list[str]:
    """Return what is wrong with a placement, as sentences; empty for a valid placement.

    Checks that the gang is whole, no host is named twice, every host is free, the spares that were
    required are there, the constraints are kept, the cuts are what the referee counts, and no bound
    exceeds what it bounds.
    """
    wrong = host_violations(fabric, free, request, placement)
    if wrong:
        return wrong
    counted = cut(fabric, request, placement.hosts)
    if counted != placement.cuts:
        wrong.append(f"cut is {counted}, the placement says {placement.cuts}")
    if placement.lower_bound > placement.cut:
        wrong.append(f"lower bound {placement.lower_bound} exceeds the cut {placement.cut}")
    if placement.is_optimal and placement.lower_bound != placement.cut:
        wrong.append("called optimal with a gap")
    wrong += step_violations(fabric, request, placement)
    if placement.inner is not None:
        inner = placement.inner
        here = sum(tier.bytes_per_step for tier in placement.cuts if tier.tier == inner.tier)
        if inner.bytes_per_step > here:
            wrong.append(f"lower bound {inner.bytes_per_step} exceeds the {inner.tier} cut {here}")
    return wrong


def step_violations(fabric: Fabric, request: Request, placement: Placement) -> list[str]:
    """Return the violations that concern the step. Cost: one step time, nothing where the placement
    says none."""
    said = placement.step
    if said is None:
        return []
    counted_s = step_time(fabric, request, placement.hosts).seconds
    wrong = []
    if not isclose(counted_s, said.seconds, rel_tol=SAME):
        wrong.append(f"a step is {counted_s} s, the placement says {said.seconds} s")
    if said.least_seconds > counted_s * (1 + SAME):
        wrong.append(f"lower bound {said.least_seconds} s exceeds the step")
    return wrong


@with_gang_view
def host_violations(
    fabric: Fabric, free: HostSet, request: Request, placement: Placement
) -> list[str]:
    """Return the violations that are found without counting bytes. Cost: O(hosts)."""
    needed = request.hosts_needed(fabric.gpus_per_host)
    if len(placement.hosts) != needed:
        return [f"the gang has {needed} blocks, {len(placement.hosts)} are placed"]
    everyone = placement.hosts + placement.spares
    wrong = []
    if len(set(everyone)) != len(everyone):
        wrong.append("a host is named twice")
    if min(everyone) < 0 or max(everyone) >= fabric.host_count:
        return [*wrong, "a host is not of this fabric"]
    taken = placement.allocation & ~free
    if taken:
        names = ", ".join(fabric.names(hostset.members(taken))[:4])
        wrong.append(f"{taken.bit_count()} hosts are not free: {names}")
    required = request.spares.required(needed)
    if len(placement.spares) < required:
        wrong.append(f"{required} spares are required, {len(placement.spares)} are held")
    part = request.part_gpus(fabric.gpus_per_host)
    if part != len(set(placement.gpus)) or any(
        gpu not in range(fabric.gpus_per_host) for gpu in placement.gpus
    ):
        wrong.append(f"the job takes {part or 'all'} GPUs of its host, {placement.gpus} are named")
    wrong += broken(fabric, request.where, placement.allocation)
    return wrong + parted(fabric, request, placement.hosts)
