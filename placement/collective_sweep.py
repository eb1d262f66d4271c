"""Which collective makes the shortest step: the gang is placed once for each, ranks in the order
that suits it."""

from __future__ import annotations

from muster.structs import replace, struct
from placement.errors import BadInput
from placement.fabric.constraints import with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.step_time import StepTime, step_time
from placement.placer import place
from placement.workload.request import NO_SPARES, Answer, Collective, Placement, Request
from placement.workload.traffic import axis_traffic, has_choice

# PAT sends what halving and doubling does.
COMPARED = tuple(each for each in Collective if each is not Collective.PAT)


@struct(frozen=True)
class PlacedCollective:
    """A gang placed for `used` on `axis`. `cut_bytes`: a step between the outermost domains."""

    axis: str
    used: Collective
    step: StepTime
    cut_bytes: int


@with_gang_view
def compare_collectives(
    fabric: Fabric, free: HostSet, request: Request
) -> tuple[list[PlacedCollective], Answer | None]:
    """Place the gang with each collective of each axis that has a choice, other axes as the job has
    them; the shortest step of each axis first. And what stands in the way where it has no place.

    Cost: five placements for each axis.
    """
    stated, ranked = dict(request.collectives), list[PlacedCollective]()
    for axis in _axes_with_a_choice(fabric, request):
        placed = []
        for used in COMPARED:
            changed = tuple({**stated, axis: used}.items())
            asked = replace(request, collectives=changed, spares=NO_SPARES)
            try:
                axis_traffic(asked)
            except BadInput:  # a tree where vectors are gathered and scattered apart
                continue
            answer = place(fabric, free, asked)
            if not isinstance(answer, Placement):
                return [], answer
            step = step_time(fabric, asked, answer.hosts)
            placed.append(PlacedCollective(axis, used, step, answer.cut))
        ranked += sorted(placed, key=lambda each: (each.step.seconds, each.cut_bytes))
    return ranked, None


def _axes_with_a_choice(fabric: Fabric, request: Request) -> list[str]:
    """Axes whose groups lie on several hosts and send in rings where nothing else is stated."""
    gpus = request.ranks_per_host(fabric.gpus_per_host)
    axes = axis_traffic(replace(request, collectives=()))
    wide = [
        each.axis for each in axes if has_choice(request, each) and gpus % (each.stride * each.size)
    ]
    return [axis for axis in wide if axis in request.parallelism.axes]
