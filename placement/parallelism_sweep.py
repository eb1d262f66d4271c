"""Which parallelism makes the shortest step on the free hosts of a fabric: each choice is bounded,
and the most promising are placed until no other can be among the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from muster.structs import replace, struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import labelled
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.step_time import StepTime, step_time
from placement.placer import place
from placement.tiers.step_clock import step_clock
from placement.workload.framework_limits import is_accepted
from placement.workload.memory import MemoryUse, fits, memory
from placement.workload.parallelism import AXES, DEFAULT_ORDER, Parallelism
from placement.workload.request import NO_SPARES, Answer, Limits, Placement, Request
from placement.workload.training import Recompute

LARGEST_MICRO_BATCH = 16  # sequences: beyond, matrices are long enough on any GPU
CHEAPEST_FIRST = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
MOST_PLACED = 60  # gangs; a second of the processor for each where they are large


@struct(frozen=True)
class PlacedChoice:
    """A choice of parallelism, with its placement. `rank`: 1 is the shortest step."""

    rank: int
    request: Request
    step: StepTime
    memory: MemoryUse


@struct(frozen=True)
class Sweep:
    """Result of a sweep. `fitting`: choices that frameworks take and memory holds, of `layouts`
    looked at. `best`: by step. `is_proved`: whether no choice that was not placed is faster than
    the last of `best`. `own`: the request as it is, if it fits. `refused`: why no gang of this size
    can be placed now."""

    gpu_gb: float
    layouts: int
    fitting: int
    placed: int
    best: tuple[PlacedChoice, ...]
    own: PlacedChoice | None
    is_proved: bool
    refused: Answer | None = None


def sweep(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    gpus: int,
    most: int,
    on_bounded: Callable[[int], None] = lambda _: None,
    on_placed: Callable[[], None] = lambda: None,
) -> Sweep:
    """Place the choices that may be among the `most` fastest ways to train on `gpus` GPUs.

    `on_bounded` is called once with the most gangs that will be placed, `on_placed` after each.

    Raises: BadInput as `parallel_choices`, `impossible`. Cost: a millisecond a choice, and up to
    MOST_PLACED placements.
    """
    gpu_gb = _least_gb(fabric, request)
    shapes: set[Parallelism] = set()
    request = replace(request, spares=NO_SPARES)
    choices = list(parallel_choices(request, gpus, gpu_gb, _reach(fabric), shapes))
    floors = [step_clock(fabric, choice).on_one_switch.seconds for choice in choices]
    order = sorted(range(len(choices)), key=floors.__getitem__)
    on_bounded(min(len(order), MOST_PLACED))
    placed: list[tuple[float, Request, StepTime]] = []
    refused: Answer | None = None
    next_floor = float("inf")
    for tried, index in enumerate(order):
        slowest = sorted(seconds for seconds, *_ in placed)[most - 1 : most]
        next_floor = floors[index]
        if tried == MOST_PLACED or (slowest and slowest[0] <= next_floor):
            break
        answer, step = _placed_step(fabric, free, choices[index])
        on_placed()
        if step is None:
            refused = answer
            break  # all choices are of one size
        placed.append((step.seconds, choices[index], step))
    else:
        next_floor = float("inf")
    placed.sort(key=lambda found: found[0])
    best = tuple(_choice(rank, found) for rank, found in enumerate(placed[:most], 1))
    is_proved = not best or best[-1].step.seconds <= next_floor
    own = _own(fabric, free, request, gpus, placed)
    return Sweep(gpu_gb, len(shapes), len(choices), len(placed), best, own, is_proved, refused)


def _choice(rank: int, found: tuple[float, Request, StepTime]) -> PlacedChoice:
    _, request, step = found
    use = memory(request)
    assert use is not None
    return PlacedChoice(rank, request, step, use)


def _own(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    gpus: int,
    placed: Sequence[tuple[float, Request, StepTime]],
) -> PlacedChoice | None:
    """The request as the job file has it; its rank is among those that were placed."""
    if request.parallelism.world_size != gpus:
        return None
    unlimited = replace(request, training=replace(request.training, gpu_memory_gb=0))
    _, step = _placed_step(fabric, free, unlimited)
    if step is None:
        return None
    faster = sum(seconds < step.seconds for seconds, *_ in placed)
    return _choice(faster + 1, (step.seconds, unlimited, step))


def _placed_step(fabric: Fabric, free: HostSet, request: Request) -> tuple[Answer, StepTime | None]:
    answer = place(fabric, free, request, Limits().first)
    if not isinstance(answer, Placement):
        return answer, None
    return answer, step_time(fabric, request, answer.hosts)


def _least_gb(fabric: Fabric, request: Request) -> float:
    """Return the least memory of the GPUs that the gang may be given, or what the job states."""
    if request.training.gpu_memory_gb:
        return request.training.gpu_memory_gb
    hosts = labelled(fabric, request.where, hostset.full(fabric.host_count))
    return min(gpu.memory_gb for gpu in fabric.by_host.kinds_of(hostset.indices(hosts)))


def _reach(fabric: Fabric) -> int:
    """GPUs that reach each other by scale-up links: of a host, or of an NVLink rack."""
    import numpy as np

    if not fabric.has_scale_up_tier:
        return fabric.gpus_per_host
    return int(np.bincount(fabric.scale_up_by_host).max()) * fabric.gpus_per_host


def parallel_choices(
    request: Request, gpus: int, gpu_gb: float, most_tp: int, shapes: set[Parallelism] | None = None
) -> Iterator[Request]:
    """Yield the request with every tp, cp, pp, ep, dp, number of chunks and micro-batch for `gpus`
    ranks, in the order of these numbers; of recomputation the least that fits `gpu_gb` GiB, for
    more of it is never faster. What is shared out, the batch and the order of axes stay.

    `most_tp`: GPUs that reach each other without the network. `shapes` collects the axes that
    were looked at, fitting or not. Explicit traffic does not follow the axes and is not allowed.

    Raises: BadInput without a model and batch, or with traffic.
    """
    model, batch = request.model, request.batch
    if model is None or batch is None:
        raise BadInput("model" if model is None else "batch", "is needed to compare parallelism")
    if request.traffic or request.compute_s is not None:
        key = "traffic" if request.traffic else "compute_time_s"
        raise BadInput(key, "is of one layout: leave it out to compare parallelism")
    order = request.parallelism.order
    order = order if set(order.split("-")) == set(AXES) else DEFAULT_ORDER
    sizes = [n for n in range(1, gpus + 1) if not gpus % n]
    for tp, cp, pp, ep in product(sizes, repeat=4):
        if tp > most_tp or gpus % (tp * cp * pp * ep) or (ep > 1 and not model.experts):
            continue
        p = Parallelism(tp, cp, ep, pp, gpus // (tp * cp * pp * ep), order)
        each, odd = divmod(batch.global_sequences, p.dp * p.ep)
        if odd or pp > model.layers:
            continue
        if shapes is not None:
            shapes.add(p)
        for chunks in [v for v in range(1, model.layers // pp + 1) if pp > 1 or v == 1]:
            for micro in [n for n in range(1, LARGEST_MICRO_BATCH + 1) if not each % n]:
                split = replace(batch, micro_sequences=micro, virtual_stages=chunks)
                fitting = _fitting(replace(request, parallelism=p, batch=split), gpu_gb)
                if fitting is not None:
                    yield fitting


def _fitting(request: Request, gpu_gb: float) -> Request | None:
    if not is_accepted(request):
        return None
    for recompute in CHEAPEST_FIRST:
        training = replace(request.training, recompute=recompute, gpu_memory_gb=0)
        choice = replace(request, training=training)
        use = memory(choice)
        if use is not None and fits(use, gpu_gb):
            return choice
    return None
