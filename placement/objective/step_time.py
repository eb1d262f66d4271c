"""How long a training step takes on a placement: the unit that users feel.

    step = max( compute + bubble + sum over axes of what is exposed,  busiest link )

compute   by its parts, on the GPUs of the hosts (compute_time.py); the slowest kind sets the pace.
bubble    idle share of compute: (p-1) / (v m) for p stages, v chunks each, m micro-batches
          (Narayanan et al. 2021, 2.2); less with other schedules (`Pipeline.bubble`). What tp, cp
          and ep expose is part of each micro-batch, so it has the same share on top.
exposed   an axis' time on its slowest layer (axis_loads.py) but for what hides behind
          compute. The rules, each with its source, are the functions below; their shares are in
          fitted_constants.toml.
busiest   all axes together on one link: no step is shorter, however much overlaps.

Messages take time beside their bytes where the fabric file says how much (`latency_us`, `km`).
Flows spread perfectly unless `step_time` gets what a routing makes of them (network/routing.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import isfinite
from typing import Protocol

import numpy as np

from muster.structs import replace, struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import labelled, with_gang_view
from placement.fabric.gpus import Gpu, with_power_limit
from placement.fabric.tree import Fabric, Floats
from placement.objective.axis_loads import (
    SCALE_UP,
    AxisLoad,
    SharedLinks,
    axis_loads,
    shared_links,
)
from placement.objective.compute_time import compute_parts, seconds_by_part
from placement.objective.fitted_constants import FittedConstants, fitted_constants
from placement.workload.flops import training_flops
from placement.workload.request import Request, StepBound
from placement.workload.roles import blocks_of_roles
from placement.workload.traffic import Pattern
from placement.workload.training import DataParallel, PipelineSchedule, Sync
from placement.workload.volumes import LAYERS_OF_CHUNK, axis_of, micro_batches, state_share

BACKWARD_SHARE = Fraction(2, 3)  # of compute: gradients of inputs and of weights
# Of 1F1B's bubble, where a backward pass is as long as two forward ones: gradients of weights fill
# the rest (zero bubble, Qi et al. 2024, table 1: F + B - 2 W of F + B).
ZERO_BUBBLE_SHARE = Fraction(1, 3)


@struct(frozen=True, slots=True)
class Assumptions:
    """Figures that neither the job nor the fabric states.

    `achieved_tflops`: of one GPU while its kernels run, in place of the rates by parts.
    `peak_tflops`: in place of the GPU's own. `constants`: in place of those that muster comes with.
    """

    achieved_tflops: float | None = None
    peak_tflops: float | None = None
    constants: FittedConstants | None = None


AS_FITTED = Assumptions()


@struct(frozen=True, slots=True)
class AxisTime:
    """One axis in a step: where it runs, how long it takes, and how much of that the step waits
    for."""

    load: AxisLoad
    seconds: float
    exposed_s: float


class LinkTime(Protocol):
    """A link, or all links that an axis uses, and how long they are busy in a step."""

    @property
    def name(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class RoutedFlows(Protocol):
    """The flows of a step under one routing."""

    @property
    def busiest(self) -> LinkTime: ...
    def axis_seconds(self, name: str) -> float:
        """Return the seconds of an axis; 0 for an axis that stays within hosts."""
        ...


@struct(frozen=True)
class StepTime:
    """A step of one placement. `flops`: of the whole job, 0 when there is no model. `interval`:
    what 8 of 10 such runs take at least and at most, times the estimate; None where its compute
    was measured or stated."""

    compute_s: float
    bubble_s: float
    axes: tuple[AxisTime, ...]
    busiest_link: str
    busiest_link_s: float
    flops: int
    peak_flops: float
    interval: tuple[float, float] | None = None

    @cached_property
    def exposed_s(self) -> float:
        return sum(axis.exposed_s for axis in self.axes)

    @cached_property
    def seconds(self) -> float:
        return max(self.compute_s + self.bubble_s + self.exposed_s, self.busiest_link_s)

    @property
    def likely_s(self) -> tuple[float, float] | None:
        """Seconds that 8 of 10 such runs take, at least and at most; None where unknown."""
        if self.interval is None:
            return None
        low, high = self.interval
        return self.seconds * low, self.seconds * high

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation: FLOPs / (peaks of all GPUs x step)."""
        return self.flops / (self.peak_flops * self.seconds) if self.flops else None


@struct(frozen=True, slots=True)
class Pipeline:
    """The schedule of a pipeline: stages, chunks on each, micro-batches, and their order."""

    stages: int
    chunks: int
    micro_batches: int
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B

    @staticmethod
    def of(request: Request) -> Pipeline:
        """Return the pipeline of a request; one micro-batch where it gives no batch."""
        p, batch = request.parallelism, request.batch
        if batch is None:
            return Pipeline(p.pp, 1, 1)
        return Pipeline(p.pp, batch.virtual_stages, micro_batches(request), batch.schedule)

    @property
    def bubble(self) -> Fraction:
        """Return idle time as a share of compute.

        DualPipe: (p/2 - 1) (F&B + B - 3 W) against (p - 1) (F + B) of 1F1B, with F = W and B = 2 F
        (DeepSeek-V3, 2024, table 2), whatever the chunks.
        """
        if self.schedule is PipelineSchedule.DUALPIPE:
            ends = max(Fraction(0), Fraction(self.stages, 2) - 1)
            return ends * Fraction(2, 3) / self.micro_batches
        plain = Fraction(self.stages - 1, self.chunks * self.micro_batches)
        is_filled = self.schedule is PipelineSchedule.ZERO_BUBBLE
        return plain * ZERO_BUBBLE_SHARE if is_filled else plain

    def wait_for_hops(self, hops: Sequence[float], compute_s: float) -> float:
        """Seconds of a step that wait for messages between stages: receives are posted early, and
        sends do not hold up the sender. `hops`: as in `AxisLoad`; `compute_s`: of the step.

        The first micro-batch meets every hop there and back, in each chunk. Then, of 1F1B, p - s
        micro-batches are under way behind stage s, and its next one enters when one has come back:
        each waits for a (p-s)-th of the hops from s on. With chunks 2 (p-s) - 1 passes of a chunk
        are under way, and the hops hide behind the compute of p - s - 1 of them.
        """
        p, v, passes = self.stages, self.chunks, self.chunks * self.micro_batches
        hidden_s = compute_s / passes if v > 1 else 0.0
        steady_s, trip_s = 0.0, 0.0
        for behind, hop in enumerate(reversed(hops[: p - 1]), start=1):
            trip_s += hop / passes
            under_way = behind + 1 if v == 1 else 2 * behind + 1
            steady_s = max(steady_s, (trip_s - behind * hidden_s) / under_way)
        wrap_s = sum(hops[p - 1 :]) / self.micro_batches
        return v * trip_s + wrap_s + (passes - 1) * steady_s

    @property
    def least_hop_share(self) -> float:
        """Return the share of all hops together that a step waits for at least."""
        first = 1 / self.micro_batches
        return first if self.chunks > 1 else first + (1 - first) / self.stages


@with_gang_view
def step_time(
    fabric: Fabric,
    request: Request,
    hosts: Sequence[int],
    assumed: Assumptions = AS_FITTED,
    routed: RoutedFlows | None = None,
    rule: Exposure | None = None,
) -> StepTime:
    """Return the step of a gang on the hosts of its blocks.

    `routed`: of the same gang on the same hosts; each axis then takes as long outside the hosts as
    its busiest cable. `rule`: what the step waits for, in place of what follows from the GPUs of
    the hosts.

    Raises: BadInput as `axis_traffic`, or as `refuse_precision`. Cost: 3 ms for 16,384 ranks.
    """
    if request.roles:
        return _step_of_roles(fabric, request, hosts, assumed, routed)
    ranks, flops = request.parallelism.world_size, training_flops(request)
    rule = rule or exposure(fabric, request, assumed, hosts)
    loads = axis_loads(fabric, request, hosts)
    has_links = routed is None and rule.counts_stages
    links = shared_links(fabric, request, hosts) if has_links else {}
    axes = tuple(axis_time(rule, load, routed, links.get(load.traffic.axis)) for load in loads)
    link, link_s = busiest_link(loads, routed)
    bubble_s = rule.compute_s * float(rule.pipeline.bubble)
    kinds = fabric.by_host.kinds_of(hosts)
    peak = ranks * _mean_peak_flops(fabric, request, hosts, assumed)
    slowest = max(kinds, key=lambda gpu: _compute_s(request, gpu, assumed))
    interval = _interval(request, slowest, assumed)
    return StepTime(rule.compute_s, bubble_s, axes, link, link_s, flops, peak, interval)


def axis_time(
    rule: Exposure, load: AxisLoad, routed: RoutedFlows | None, links: SharedLinks | None
) -> AxisTime:
    """Return the time of an axis, and what of it the step waits for. `links`: where stages are told
    apart on them."""
    axis, seconds = load.traffic.axis, axis_seconds(load, routed)
    if load.rounds or links is None or load.hops or not isfinite(seconds):
        exposed_s = rule.exposed_s(axis, seconds, _hops(load, seconds))
    else:
        inside_s = rule.exposed_s(axis, load.on(SCALE_UP))
        exposed_s = max(inside_s, rule.exposed_on_links(axis, links, load.latency_s))
    return AxisTime(load, seconds, exposed_s)


def _step_of_roles(
    fabric: Fabric,
    request: Request,
    hosts: Sequence[int],
    assumed: Assumptions,
    routed: RoutedFlows | None,
) -> StepTime:
    """Return the step of the slowest role, after which all wait for what roles send each other."""
    blocks = blocks_of_roles(request, request.parallelism.world_size // len(hosts))
    steps = {
        role.name: step_time(fabric, role.request, hosts[part], assumed)
        for role, part in zip(request.roles, blocks, strict=True)
        if role.request.has_step_time or not request.has_step_time
    }
    slowest = max(steps, key=lambda name: steps[name].seconds)
    loads = axis_loads(fabric, request, hosts)
    link, link_s = busiest_link(loads, routed)
    exposed = {f"{slowest}.{a.load.traffic.axis}": a.exposed_s for a in steps[slowest].axes}
    shown = [load for load in loads if load.traffic.axis in exposed]
    sent = [load for load in loads if load.traffic.pattern is Pattern.PAIRS]
    axes = tuple(
        AxisTime(load, s := axis_seconds(load, routed), exposed.get(load.traffic.axis, s))
        for load in (*shown, *sent)
    )
    return replace(
        steps[slowest],
        axes=axes,
        flops=0,  # what roles that do not train compute is not known
        busiest_link=link,
        busiest_link_s=link_s,
    )


def peak_flops(request: Request, gpu: Gpu, assumed: Assumptions) -> float:
    """Return the most FLOP/s of one GPU, in the precision of the job."""
    if assumed.peak_tflops is not None:
        return assumed.peak_tflops * 1e12
    gpu = with_power_limit(gpu, request.gpu_watts)
    return gpu.peak(request.model.dtype if request.model else "bf16")


def _mean_peak_flops(
    fabric: Fabric, request: Request, hosts: Sequence[int], assumed: Assumptions
) -> float:
    """FLOP/s of a GPU of the gang at most, on average: what faster kinds cannot use counts too."""
    own, kinds = fabric.by_host, fabric.by_host.kinds_of(hosts)
    if own.kind_by_host is None or len(kinds) == 1:
        return peak_flops(request, kinds[0], assumed)
    many = Counter(own.kind_by_host[list(hosts)].tolist())
    peaks = (n * peak_flops(request, own.kinds[kind], assumed) for kind, n in many.items())
    return sum(peaks) / len(hosts)


def _interval(request: Request, gpu: Gpu, assumed: Assumptions) -> tuple[float, float] | None:
    """None where compute does not follow from the model's parts."""
    is_stated = request.compute_s is not None or assumed.achieved_tflops is not None
    if request.model is None or is_stated:
        return None
    constants = assumed.constants or fitted_constants()
    is_measured = constants.rates(gpu.name, request.model.dtype).is_measured
    return constants.interval(has_experts=bool(request.model.experts), is_measured=is_measured)


def step_bound(fabric: Fabric, request: Request, hosts: Sequence[int]) -> StepBound | None:
    """Return the step of a gang where the request says enough to know it; nothing is proved of
    it."""
    if not request.has_step_time:
        return None
    return StepBound(step_time(fabric, request, hosts).seconds)


def refuse_precision(fabric: Fabric, request: Request) -> None:
    """Refuse a job in a precision that a GPU lacks which the gang may be given. Raises:
    BadInput."""
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


def exposure(
    fabric: Fabric,
    request: Request,
    assumed: Assumptions = AS_FITTED,
    hosts: Sequence[int] | None = None,
) -> Exposure:
    """Return how much of each axis the step waits for on these hosts. With None it is no less than
    on any hosts: compute of the fastest GPU that the gang may be given, hidden behind that of the
    slowest.

    Raises: BadInput as `axis_traffic`, or where a GPU lacks the precision.
    """
    kinds = _kinds(fabric, request) if hosts is None else fabric.by_host.kinds_of(hosts)
    seconds = [_compute_s(request, gpu, assumed) for gpu in kinds]
    slowest_s = max(seconds)
    compute_s = min(seconds) if hosts is None else slowest_s
    constants = assumed.constants or fitted_constants()
    line = Pipeline.of(request)
    shares = _exposed_shares(request, line, constants)
    return Exposure(request, line, compute_s, shares, slowest_s)


def fastest_gpu(fabric: Fabric, request: Request) -> Gpu:
    """The kind of GPU with the shortest compute among those that the gang may be given."""
    kinds = _kinds(fabric, request)
    return min(kinds, key=lambda gpu: _compute_s(request, gpu, AS_FITTED))


def _kinds(fabric: Fabric, request: Request) -> tuple[Gpu, ...]:
    """GPUs of the hosts that the gang may be given."""
    if len(fabric.by_host.kinds) == 1:
        return fabric.by_host.kinds
    hosts = labelled(fabric, request.where, hostset.full(fabric.host_count))
    return fabric.by_host.kinds_of(hostset.indices(hosts))


def _compute_s(request: Request, gpu: Gpu, assumed: Assumptions) -> float:
    """Seconds of compute in a step, bubble left out: measured, at a rate stated, or by parts."""
    if request.compute_s is not None:
        return request.compute_s
    if assumed.achieved_tflops is not None:
        rate = assumed.achieved_tflops * 1e12
        return training_flops(request) / (request.parallelism.world_size * rate)
    return sum(compute_by_part(request, gpu, assumed).values())


def compute_by_part(
    request: Request, gpu: Gpu, assumed: Assumptions = AS_FITTED
) -> dict[str, float]:
    """Return the seconds of each part of compute on such GPUs; empty without a model and a
    batch."""
    gpu = with_power_limit(gpu, request.gpu_watts)
    if request.model is not None and assumed.peak_tflops is not None:
        peaks = {**dict(gpu.tflops), request.model.dtype: assumed.peak_tflops}
        gpu = replace(gpu, tflops=tuple(peaks.items()))
    parts = compute_parts(request, gpu)
    if parts is None or request.model is None:
        return {}
    constants = assumed.constants or fitted_constants()
    rates = constants.rates(gpu.name, request.model.dtype)
    named = seconds_by_part(parts, rates, constants)
    return {name: float(seconds) for name, seconds in named.items() if seconds}


def _exposed_shares(
    request: Request, line: Pipeline, constants: FittedConstants
) -> Mapping[str, float]:
    """Shares of an axis' time that the step waits for: of activations by axis, each micro-batch
    in turn and while the pipeline fills as well; of state under `dp`."""
    shares, stretched = constants.exposed, 1 + float(line.bubble)
    if request.model is None:  # but for one layer all state may hide
        waited = dict.fromkeys(("tp", "cp", "ep"), stretched)
        return {**waited, "dp": 1 / (line.chunks * LAYERS_OF_CHUNK)}
    is_split = request.training.sequence_parallel
    return {
        "tp": shares["tp" if is_split else "tp_whole"] * stretched,
        "cp": shares["cp"] * stretched,
        "ep": shares["ep"] * stretched,
        "dp": shares["dp"],
    }


def axis_seconds(load: AxisLoad, routed: RoutedFlows | None) -> float:
    """Return an axis' seconds on its slowest layer, or busiest cable where flows are routed."""
    if routed is None:
        return load.seconds
    rounds = load.rounds or (load,)
    return sum(
        max(each.on(SCALE_UP), routed.axis_seconds(each.traffic.axis)) + each.latency_s
        for each in rounds
    )


def _hops(load: AxisLoad, seconds: float) -> Sequence[float]:
    """Hops of a pipeline that takes so long; routing slows all of them alike."""
    if seconds == load.seconds or not load.seconds or not isfinite(load.seconds):
        return load.hops
    return [hop * seconds / load.seconds for hop in load.hops]


def busiest_link(loads: Sequence[AxisLoad], routed: RoutedFlows | None) -> tuple[str, float]:
    """Return the layer, or cable, that all axes together keep busy longest: its name and seconds.

    On a layer each axis counts with its own busiest domain, the same one in a balanced placement.
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
    """The part of each axis' time that the step waits for: convex in the time that the axis takes.

    `shares`: of activations that are waited for, by axis, and of state under `dp`. `hiding_s`:
    compute behind which communication hides.
    """

    request: Request
    pipeline: Pipeline
    compute_s: float
    shares: Mapping[str, float]
    hiding_s: float

    def slope(self, axis: str, start_s: float, end_s: float) -> float:
        """Return the least share of the time between these two for which the step waits."""
        if end_s <= start_s:
            return 0.0
        waited_s = self.least_exposed_s(axis, end_s) - self.least_exposed_s(axis, start_s)
        return waited_s / (end_s - start_s)

    def exposed_s(self, axis: str, seconds: float, hops: Sequence[float] = ()) -> float:
        """Return the part of an axis' seconds for which the step waits.

        `hops`: of a pipeline; without them it is the least that they can cost, for each link is met
        by the hops over it one by one.
        """
        axis = axis_of(axis)
        if not isfinite(seconds):  # over a link that is down
            return seconds
        if axis == "pp":
            if hops:
                return self.pipeline.wait_for_hops(hops, self.hiding_s)
            return self.pipeline.least_hop_share * seconds
        state = float(state_share(self.request, axis)) * seconds
        waited_s = self.shares.get(axis, 1.0) * (seconds - state) if state < seconds else 0.0
        return waited_s + self._state(state)

    @property
    def counts_stages(self) -> bool:
        """Whether stages are told apart on links: only where no share was fitted to clusters, for a
        fitted share includes what stages do to each other."""
        return self.request.model is None and self.pipeline.stages > 1

    def exposed_on_links(self, axis: str, links: SharedLinks, latency_s: float = 0.0) -> float:
        """Return the seconds for which the step waits on network cards and uplinks. `latency_s`:
        of messages beside their bytes.

        Activations: each stage waits for its own, whose rate is halved for the part of the time in
        which others send over the link; and no longer than for all at once. State: a later stage
        computes last so much earlier, and first so much later, as the pipeline takes to drain and
        to fill, and hides that much more. It hides only while messages between stages leave the
        link free.
        """
        together_s, last = np.cumsum(links.by_stage, axis=1), self.pipeline.stages - 1
        if not state_share(self.request, axis):
            alone_s, all_s = links.by_stage.max(axis=1, initial=0.0), together_s[:, -1]
            met_s = alone_s * (1 + self._busy_share(all_s - alone_s))
            sent_s = float(np.minimum(met_s, all_s).max(initial=0.0))
            return self.exposed_s(axis, sent_s + latency_s)
        together_s = together_s + latency_s
        window_s = self.window_s + self._bubble_s * np.arange(last + 1) / last
        hidden_s = np.outer(1 - self._busy_share(links.hops_s), window_s)
        share = self.shares["dp"]
        waited_s = share * together_s + np.maximum((1 - share) * together_s - hidden_s, 0.0)
        return float(waited_s.max(initial=0.0))

    def least_exposed_s(self, axis: str, seconds: float) -> float:
        """Return the seconds for which the step waits at least where all stages together need so
        many on an uplink: convex, and for a pipeline proportional."""
        if not self.counts_stages or axis == "pp":
            return self.exposed_s(axis, seconds)
        if not state_share(self.request, axis):
            return self.exposed_s(axis, seconds / self.pipeline.stages)
        share = self.shares["dp"]
        hidden_s = self.window_s + self._bubble_s
        return share * seconds + max(0.0, (1 - share) * seconds - hidden_s)

    @property
    def _bubble_s(self) -> float:
        return self.hiding_s * float(self.pipeline.bubble)

    def _busy_share(self, seconds: Floats) -> Floats:
        """The part of a step that waits for nothing in which links are busy for so long."""
        paced_s = self.hiding_s + self._bubble_s
        return np.minimum(seconds / paced_s, 1.0) if paced_s else np.ones(len(seconds))

    def _state(self, seconds: float) -> float:
        """Parameters and gradients hide, but for a share of them, behind the compute between their
        first (last) use and that of the next chunk; the last chunk's behind one micro-batch, layer
        by layer. (Llama 3, 3.3.2: FSDP prefetches weights and reduces gradients while it
        computes. PyTorch DDP, 2020: gradients alone, so backward alone.)
        """
        share = self.shares["dp"]
        return share * seconds + max(0.0, (1 - share) * seconds - self.window_s)

    @property
    def window_s(self) -> float:
        """Seconds of compute that parameters and gradients hide behind."""
        line = self.pipeline
        together = min(line.stages, line.micro_batches)  # micro-batches on a chunk in turn
        passes: float = (line.chunks - 1) * together + 1
        if self.request.model is None:
            passes -= 1 / LAYERS_OF_CHUNK  # behind whose compute nothing is left to hide
        window_s = self.hiding_s * passes / (line.chunks * line.micro_batches)
        if self.request.training.sync is Sync.MICRO_BATCH:
            window_s = self.hiding_s
        if self.request.training.data_parallel is DataParallel.DDP:
            window_s *= float(BACKWARD_SHARE)
        return window_s
