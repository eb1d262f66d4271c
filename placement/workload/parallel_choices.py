"""Every way to train a model in parallel on so many GPUs that frameworks take and memory holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from muster.structs import replace
from placement.errors import BadInput
from placement.workload.framework_limits import is_accepted
from placement.workload.memory import fits, memory
from placement.workload.parallelism import AXES, DEFAULT_ORDER, Parallelism
from placement.workload.request import Request
from placement.workload.training import Recompute

LARGEST_MICRO_BATCH = 16  # sequences: beyond, matrices are long enough on any GPU
CHEAPEST_FIRST = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)


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
