"""How long a training step takes on a placement: the unit that users feel.

    step = max( compute + bubble + sum over axes of what is exposed,  busiest link )

compute   model FLOPs / (ranks x achieved rate): the rate of the kernels while they run,
          with neither bubble nor waiting in it.
bubble    (p-1) / (v m) of compute for p stages, v chunks each, m micro-batches
          (Narayanan et al. 2021, 2.2).
exposed   an axis' time on its slowest layer (axis_loads.py) but for what hides behind
          compute. The rules, each with its source, are the functions below.
busiest   all axes together on one link: no step is shorter, however much overlaps.

Bandwidth only: the latency of messages is left out (network/collectives/schedules.py has it).
Flows spread perfectly unless `step_time` gets what a routing makes of them (network/routing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import isfinite
from typing import Protocol

from muster.structs import struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import labelled, seen_by_gang
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import SCALE_UP, AxisLoad, axis_loads
from placement.workload.flops import training_flops
from placement.workload.request import Request, StepBound
from placement.workload.training import DataParallel, Sync
from placement.workload.volumes import state_share, work_of

PEAK_TFLOPS = 989.4  # H100 SXM, dense BF16 (NVIDIA data sheet)
# Of peak, while kernels run: what makes this model meet both 8,192-token rows of Llama 3,
# table 4 (430 TFLOP/s on 8,192 GPUs, 400 on 16,384), with v = 8. docs/validation.md.
EFFICIENCY = 0.52
BACKWARD_SHARE = Fraction(2, 3)  # of compute: gradients of inputs and of weights


@struct(frozen=True, slots=True)
class Assumptions:
    """What the network does not say.

    `achieved_tflops`: of one GPU while its kernels run. `compute_s`: of one step,
    measured; used instead of the request's, and of the FLOPs, when given.
    `hidden`: by axis, the share of its time that is hidden, in place of the rule.
    """

    achieved_tflops: float = PEAK_TFLOPS * EFFICIENCY
    peak_tflops: float = PEAK_TFLOPS
    compute_s: float | None = None
    hidden: tuple[tuple[str, float], ...] = ()


ON_H100 = Assumptions()


@struct(frozen=True, slots=True)
class AxisTime:
    """One axis: where it runs, how long it takes, how much of that the step waits for."""

    load: AxisLoad
    seconds: float
    exposed_s: float


class LinkTime(Protocol):
    """A link, or all links that an axis meets, and how long they are busy in a step."""

    @property
    def name(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class RoutedFlows(Protocol):
    """What a routing makes of the flows of a step."""

    @property
    def busiest(self) -> LinkTime: ...
    def axis_seconds(self, name: str) -> float:
        """0 for an axis that stays within hosts."""
        ...


@struct(frozen=True)
class StepTime:
    """A step of one placement. `flops`: of the whole job, 0 when there is no model."""

    compute_s: float
    bubble_s: float
    axes: tuple[AxisTime, ...]
    busiest_link: str
    busiest_link_s: float
    flops: int
    peak_flops: float

    @cached_property
    def exposed_s(self) -> float:
        return sum(axis.exposed_s for axis in self.axes)

    @cached_property
    def seconds(self) -> float:
        return max(self.compute_s + self.bubble_s + self.exposed_s, self.busiest_link_s)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation: FLOPs / (ranks x peak x step)."""
        return self.flops / (self.peak_flops * self.seconds) if self.flops else None


@struct(frozen=True, slots=True)
class Pipeline:
    """Stages, chunks on each, micro-batches in turn."""

    stages: int
    chunks: int
    micro_batches: int

    @staticmethod
    def of(request: Request) -> Pipeline:
        """One micro-batch where no batch is given."""
        p, batch = request.parallelism, request.batch
        if batch is None:
            return Pipeline(p.pp, 1, 1)
        work = work_of(request)
        replicas = p.dp * p.ep * batch.micro_sequences
        count = work.micro_batches if work else max(1, batch.global_sequences // replicas)
        return Pipeline(p.pp, batch.virtual_stages, count)

    @property
    def bubble(self) -> Fraction:
        """Idle time as a share of compute."""
        return Fraction(self.stages - 1, self.chunks * self.micro_batches)


@seen_by_gang
def step_time(
    fabric: Fabric,
    request: Request,
    hosts: Sequence[int],
    assumed: Assumptions = ON_H100,
    routed: RoutedFlows | None = None,
) -> StepTime:
    """The step of a gang on the hosts of its blocks.

    `routed`: of the same gang on the same hosts; each axis then takes as long outside
    the hosts as its busiest cable.

    Raises: BadInput as `axis_traffic`. Cost: 3 ms for 16,384 ranks.
    """
    ranks, flops = request.parallelism.world_size, training_flops(request)
    rule = exposure(request, assumed)
    loads = axis_loads(fabric, request, hosts)
    spent = [(load, axis_seconds(load, routed)) for load in loads]
    axes = tuple(AxisTime(load, s, rule.exposed_s(load.traffic.axis, s)) for load, s in spent)
    link, link_s = busiest_link(loads, routed)
    bubble_s = rule.compute_s * float(rule.pipeline.bubble)
    peak = ranks * assumed.peak_tflops * 1e12
    return StepTime(rule.compute_s, bubble_s, axes, link, link_s, flops, peak)


def step_bound(fabric: Fabric, request: Request, hosts: Sequence[int]) -> StepBound | None:
    """The step where the request says enough to know it; nothing is proved of it."""
    if not request.has_step_time:
        return None
    return StepBound(step_time(fabric, request, hosts).seconds)


def refuse_precision(fabric: Fabric, request: Request) -> None:
    """Raises: BadInput where a GPU that the gang may be given lacks the precision of the job."""
    if request.model is None:
        return
    every = hostset.full(fabric.host_count)
    hosts = labelled(fabric, request.where, every)
    kinds = fabric.by_host.kinds
    if len(kinds) > 1:
        kinds = fabric.by_host.kinds_of(hostset.indices(hosts))
    for gpu in kinds:
        try:
            gpu.peak(request.model.dtype)
        except BadInput as error:
            hint = ""
            if fabric.by_host.is_kind_assumed:
                hint = f"; {fabric.name} names no GPU, and `gpu:` there would"
            elif len(kinds) > 1:
                hint = "; constraints.hosts leaves out hosts that have it not"
            raise BadInput(error.field, f"{error.message}{hint}") from None


def exposure(request: Request, assumed: Assumptions = ON_H100) -> Exposure:
    """Raises: BadInput as `axis_traffic`."""
    compute_s = request.compute_s if assumed.compute_s is None else assumed.compute_s
    if compute_s is None:
        ranks, flops = request.parallelism.world_size, training_flops(request)
        compute_s = flops / (ranks * assumed.achieved_tflops * 1e12)
    return Exposure(request, Pipeline.of(request), compute_s, dict(assumed.hidden))


def axis_seconds(load: AxisLoad, routed: RoutedFlows | None) -> float:
    """On its slowest layer, or on its busiest cable where flows are routed."""
    if routed is None:
        return load.seconds
    return max(load.on(SCALE_UP), routed.axis_seconds(load.traffic.axis))


def busiest_link(loads: Sequence[AxisLoad], routed: RoutedFlows | None) -> tuple[str, float]:
    """The layer, or cable, that all axes together keep busy longest: its name and seconds.

    On a layer each axis counts with its own busiest domain, the same one in a balanced
    placement.
    """
    names = dict.fromkeys(load.layer for axis in loads for load in axis.loads)
    totals = {name: sum(axis.on(name) for axis in loads) for name in names}
    if routed is not None:
        inside = totals.get(SCALE_UP, 0.0)
        totals = {SCALE_UP: inside, routed.busiest.name: routed.busiest.seconds}
    slowest = max(totals, key=totals.__getitem__, default=SCALE_UP)
    return slowest, totals.get(slowest, 0.0)


@struct(frozen=True, slots=True)
class Exposure:
    """What of each axis the step waits for: convex in the time that the axis takes."""

    request: Request
    pipeline: Pipeline
    compute_s: float
    hidden: dict[str, float]

    def slope(self, axis: str, start_s: float, end_s: float) -> float:
        """The share of the time between for which the step waits."""
        if end_s <= start_s:
            return 0.0
        waited_s = self.exposed_s(axis, end_s) - self.exposed_s(axis, start_s)
        return waited_s / (end_s - start_s)

    def exposed_s(self, axis: str, seconds: float) -> float:
        if not isfinite(seconds):  # over a link that is down
            return seconds
        if axis in self.hidden:
            return seconds * (1 - self.hidden[axis])
        if axis == "pp":
            return self._pipeline(seconds)
        state = float(state_share(self.request, axis)) * seconds
        return seconds - state + self._state(state)

    def _pipeline(self, seconds: float) -> float:
        """While the pipeline fills and drains nothing else runs: (p-1)/m of its messages.

        In between, sends hide behind the next micro-batch. Chunks do not change the share:
        each pass over them fills anew. (Narayanan et al. 2021, 2.2.)
        """
        share = min(1.0, (self.pipeline.stages - 1) / self.pipeline.micro_batches)
        return share * seconds + max(0.0, (1 - share) * seconds - self.compute_s)

    def _state(self, seconds: float) -> float:
        """Parameters and gradients hide behind the compute between their first (last) use
        and that of the next chunk; the last chunk's behind one micro-batch, layer by
        layer. (Llama 3, 3.3.2: FSDP prefetches weights and reduces gradients while it
        computes. PyTorch DDP, 2020: gradients alone, so backward alone.)
        """
        line = self.pipeline
        together = min(line.stages, line.micro_batches)  # micro-batches on a chunk in turn
        passes = (line.chunks - 1) * together + 1
        window = self.compute_s * passes / (line.chunks * line.micro_batches)
        if self.request.training.sync is Sync.MICRO_BATCH:
            window = self.compute_s
        if self.request.training.data_parallel is DataParallel.DDP:
            window *= float(BACKWARD_SHARE)
        return max(0.0, seconds - window)
