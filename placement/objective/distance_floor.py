"""What distance adds to every step: a gang that no domain of a tier can hold sends over that tier.

Of each set of axes whose groups all stay inside domains, groups that share hosts lie in the same
domain, which therefore holds their product. What no domain holds, or too few, cannot be; else some
group of every other axis has ends in two domains, and a message between them takes the latency of
the tier and of all tiers inside it, in each pass over the group:

- a ring leaves a domain and comes back, two of its edges; one of two ranks sends once at a time;
- all-to-all waits for the farthest, a hierarchy passes its outermost level at least once, and so
  does a collective in rounds in one of them;
- the longest branch of a tree is as long as any with such a message, which may be a short one;
- of a pipeline one hop takes longer, the one for which the step waits least.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from muster.structs import replace, struct
from placement.fabric.tree import Fabric, Ints
from placement.objective.axis_loads import AxisLoad, SharedLinks
from placement.objective.step_floor import hosts_of_group
from placement.objective.step_time import Exposure, StepTime, axis_time
from placement.workload.request import Request
from placement.workload.traffic import Pattern
from placement.workload.trees import depth_of_trees
from placement.workload.volumes import passes_per_step


@struct(frozen=True, slots=True)
class NearStep:
    """A step on one switch. `links`: those of each axis there, where stages are told apart."""

    step: StepTime
    rule: Exposure
    links: dict[str, SharedLinks]

    def waits_s(self, load: AxisLoad) -> float:
        """Return the seconds for which a step waits for an axis with such a load."""
        return axis_time(self.rule, load, None, self.links.get(load.traffic.axis)).exposed_s


def least_distant_step_s(fabric: Fabric, request: Request, free: Ints, near: NearStep) -> float:
    """Return the seconds that no step on the free hosts goes below, by what has to leave domains of
    each tier.

    For hosts without racks of NVLink. Cost: a millisecond for each tier and axis.
    """
    gpus = request.ranks_per_host(fabric.gpus_per_host)
    blocks = request.parallelism.world_size // gpus
    loads = {each.load: hosts_of_group(each.load.traffic, gpus)[0] for each in near.step.axes}
    wide = [load for load, hosts in loads.items() if hosts > 1]
    least_s = 0.0
    for depth, tier in enumerate(fabric.tiers):
        late_s = sum(inner.latency_s for inner in fabric.tiers[depth:])
        room = tier.count(free)
        if not late_s or int(room.max()) >= blocks:
            continue
        added_s = [_added_s(fabric, request, near, load, late_s) for load in wide]
        ways = []
        for stays in product((True, False), repeat=len(wide)):
            together = prod(loads[load] for load, is_in in zip(wide, stays, strict=True) if is_in)
            if int((room // together).sum()) >= -(-blocks // together):
                ways.append(sum(s for s, is_in in zip(added_s, stays, strict=True) if not is_in))
        least_s = max(least_s, min(ways, default=0.0))
    step = near.step
    return step.compute_s + step.bubble_s + step.exposed_s + least_s


def _added_s(
    fabric: Fabric, request: Request, near: NearStep, load: AxisLoad, late_s: float
) -> float:
    """Return the seconds that a step waits longer where some group of an axis has ends in two
    domains, between which messages take `late_s` longer than on one switch."""
    traffic = load.traffic
    if not traffic.edge_bytes:
        return 0.0
    longer_s = passes_per_step(request, traffic.axis) * _longer_s(fabric, load, late_s)
    if load.hops:
        hops = np.array(load.hops) + longer_s * np.eye(traffic.size - 1, len(load.hops))
        farther = [replace(load, hops=tuple(each)) for each in hops.tolist()]
    elif load.rounds:
        first, *others = load.rounds
        later = replace(first, latency_s=first.latency_s + longer_s)
        farther = [replace(load, rounds=(later, *others))]
    else:
        farther = [replace(load, latency_s=load.latency_s + longer_s)]
    return min(map(near.waits_s, farther)) - near.waits_s(load)


def _longer_s(fabric: Fabric, load: AxisLoad, late_s: float) -> float:
    """Return the seconds that one pass over a group takes longer at least."""
    traffic = load.traffic
    match traffic.pattern:
        case Pattern.RING if traffic.size > 2 and not load.rounds:
            return 2 * late_s
        case Pattern.TREE:
            short = depth_of_trees(traffic.size // traffic.node) - 1
            return max(0.0, late_s - short * fabric.latency_s)
        case _:
            return late_s
