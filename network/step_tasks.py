"""A training step as tasks: what each rank computes, what is sent between them, and in what order.

The reference between the formula of a step (placement/objective/step_time.py) and packets: the
same bytes of the same axes, but in the order in which a framework sends them. `step_simulation`
plays the tasks on links that are shared fairly.

    pipeline     1F1B, interleaved with chunks, or ZB-H1; receives are posted early, sends do not
                 hold up the sender
    tp, cp, ep   after the compute of each micro-batch; the next one waits
    parameters   FSDP: gathered one piece after another from the start, each before the first
                 micro-batch that needs it; ZERO3 once more in backward
    gradients    piece by piece behind the last micro-batch of a chunk, the last one behind nothing

A *unit* is a rank, or all ranks of a tensor parallel group that lies inside one host: they do the
same at the same time, so one stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.structs import replace, struct
from network.flows import edges_of
from network.wiring import Floats
from placement import BadInput
from placement.fabric.constraints import with_gang_view
from placement.fabric.tree import Fabric, Ints
from placement.objective.axis_loads import latencies
from placement.objective.step_time import BACKWARD_SHARE, Pipeline
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic, groups_of
from placement.workload.training import (
    DTYPE_BYTES,
    MODEL_BYTES,
    DataParallel,
    PipelineSchedule,
    Sync,
)
from placement.workload.volumes import REPLICATE, axis_of, state_share

# Layers of a chunk are exchanged in so many pieces at most; where no model says how many layers
# there are, in as many.
PIECES = 8


@struct(frozen=True, slots=True, eq=False)
class Exchange:
    """Bytes that the members of a group send each other in a whole step.

    `src`, `dst`: units; `bytes`, `flows`: of all ranks of a unit together; shape (edges,).
    `members`: all units of the group. `latency_s`: of the messages in turn, beside their bytes.
    """

    axis: str
    members: Ints
    src: Ints
    dst: Ints
    bytes: Floats
    flows: Ints
    latency_s: float = 0.0


@dataclass(slots=True)
class Task:
    """Compute of one unit, or a part of an exchange. `seconds`: of compute; `share`: of the
    exchange's bytes. `after`: tasks that end before it begins. `is_state`: sends parameters or
    gradients, which frameworks send beside the activations of the same group."""

    unit: int
    seconds: float = 0.0
    exchange: Exchange | None = None
    share: float = 0.0
    after: list[int] = field(default_factory=list)
    is_state: bool = False


@struct(frozen=True, slots=True, eq=False)
class StepTasks:
    """All tasks of a step. `host_by_unit`: shape (units,); `ranks_per_unit`: ranks of each."""

    tasks: list[Task]
    host_by_unit: Ints
    ranks_per_unit: int


@with_gang_view
def step_tasks(
    fabric: Fabric, request: Request, hosts: Sequence[int], compute_s: float, merged: bool = True
) -> StepTasks:
    """Return the tasks of a step of a gang on the hosts of its blocks. `compute_s`: of each rank in
    a step.

    `merged`: let one unit stand for a tensor parallel group inside a host. Raises: BadInput as
    `axis_traffic`, on DualPipe and roles, which are not simulated, and on a pipeline without a
    batch.
    """
    if request.roles:
        raise BadInput("roles", "a step of several roles is not simulated")
    if request.parallelism.pp > 1 and request.batch is None:
        raise BadInput("batch", "is needed to simulate a pipeline: it gives the micro-batches")
    if request.batch and request.batch.schedule is PipelineSchedule.DUALPIPE:
        raise BadInput("batch.schedule", "dualpipe is not simulated: 1f1b and zero_bubble are")
    per_host, p = request.ranks_per_host(fabric.gpus_per_host), request.parallelism
    is_inside = p.axes[0] == "tp" and per_host % p.tp == 0
    width = p.tp if merged and is_inside else 1
    units = p.world_size // width
    host_by_unit = np.repeat(np.asarray(hosts, dtype=np.int64), per_host // width)[:units]
    builder = _Builder(fabric, request, host_by_unit, width, compute_s)
    builder.build()
    return StepTasks(builder.tasks, host_by_unit, width)


@struct(frozen=True, slots=True)
class _Slot:
    """A pass of one micro-batch through one chunk. `kind`: F, B (both gradients), I (of inputs) or
    W (of weights)."""

    kind: str
    chunk: int
    micro: int


def pipeline_order(line: Pipeline, stage: int, is_zero_bubble: bool = False) -> list[_Slot]:
    """List the slots of a stage in turn: warm up, one forward and one backward, drain.

    Source: Narayanan et al. 2021, 2.2; Megatron-Core's schedules for interleaved stages; Qi et al.
    2024 for ZB-H1, whose gradients of weights fill what the stage would wait.
    """
    p, v, m = line.stages, line.chunks, line.micro_batches
    total, group = m * v, p if m % p == 0 else m
    ahead = p - stage - 1 if v == 1 else 2 * (p - stage - 1) + (v - 1) * group
    ahead = min(ahead, total)

    def slot(kind: str, nth: int) -> _Slot:
        chunk = nth // group % v
        micro = nth // (group * v) * group + nth % group
        return _Slot(kind, chunk if kind == "F" else v - 1 - chunk, micro)

    order = [slot("F", nth) for nth in range(ahead)]
    waiting: list[_Slot] = []
    for nth in range(total):
        if ahead + nth < total:
            order.append(slot("F", ahead + nth))
        back = slot("B", nth)
        if not is_zero_bubble:
            order.append(back)
            continue
        order.append(replace(back, kind="I"))
        waiting.append(replace(back, kind="W"))
        if len(waiting) > stage:
            order.append(waiting.pop(0))
    return order + waiting


class _Builder:
    """Makes the tasks of one step. `last`: by unit, the task after which its next one begins."""

    def __init__(
        self, fabric: Fabric, request: Request, host_by_unit: Ints, width: int, compute_s: float
    ) -> None:
        self.tasks: list[Task] = []
        self._request, self._width, self._line = request, width, Pipeline.of(request)
        self._slots = self._line.chunks * self._line.micro_batches
        self._forward_s = compute_s * float(1 - BACKWARD_SHARE) / self._slots
        self._backward_s = compute_s * float(BACKWARD_SHARE) / self._slots
        layers = request.model.layers if request.model else PIECES * self._line.stages
        self._pieces = max(1, min(PIECES, layers // (self._line.stages * self._line.chunks)))
        self._last: list[int | None] = [None] * len(host_by_unit)
        self._groups: dict[str, list[Exchange]] = {}
        self._state_shares: dict[str, float] = {}
        self._pipes: Ints = np.arange(len(host_by_unit))[:, None]
        self._message_bytes = 0.0
        self._late_s = [[0.0]] * len(host_by_unit)  # by pipe, of a message to the next stage
        self._ended: dict[tuple[str, int, str], int] = {}  # the exchange before, of each group
        for traffic in axis_traffic(request, request.ranks_per_host(fabric.gpus_per_host)):
            self._read_axis(fabric, traffic, host_by_unit)

    def _read_axis(self, fabric: Fabric, traffic: AxisTraffic, host_by_unit: Ints) -> None:
        width = self._width
        if width > 1 and traffic.axis == "tp":
            # Inside a unit: time on NVLink alone, which is part of its compute.
            edge_s = traffic.edge_bytes * 8 / (fabric.scale_up_gbps * 1e9) / self._slots
            self._forward_s += edge_s / 2
            self._backward_s += edge_s / 2
            return
        outer = replace(traffic, stride=traffic.stride // width)
        groups = groups_of(np.arange(len(host_by_unit)), outer)
        hosts = host_by_unit[groups]
        if traffic.pattern is Pattern.CHAIN:
            self._pipes = groups
            self._message_bytes = width * traffic.edge_bytes / (2 * self._slots)
            self._late_s = fabric.latency_between(hosts, np.roll(hosts, -1, axis=1)).tolist()
        elif traffic.edge_bytes:
            self._state_shares[traffic.axis] = float(state_share(self._request, traffic.axis))
            late = np.zeros(len(groups))
            if fabric.has_latency:
                late = latencies(fabric, self._request, traffic, hosts)
            self._groups[traffic.axis] = [
                replace(_exchange(fabric, traffic, members, host_by_unit, width), latency_s=seconds)
                for members, seconds in zip(groups, late.tolist(), strict=True)
            ]

    def build(self) -> None:
        """Fill `tasks` with those of a step."""
        is_zero_bubble = bool(
            self._request.batch and self._request.batch.schedule is PipelineSchedule.ZERO_BUBBLE
        )
        orders = [
            pipeline_order(self._line, stage, is_zero_bubble) for stage in range(self._line.stages)
        ]
        sent = self._messages(orders)
        for stage, order in enumerate(orders):
            self._stage(stage, order, sent)

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _messages(self, orders: Sequence[Sequence[_Slot]]) -> dict[tuple[int, _Slot], int]:
        """A message for each slot whose result another stage waits for, by the unit that waits and
        the slot that it waits with."""
        sent: dict[tuple[int, _Slot], int] = {}
        # Without bytes a message still says that its stage may begin.
        edges = 1 if self._message_bytes else 0
        size, flows = np.full(edges, self._message_bytes), np.full(edges, self._width)
        before: dict[tuple[int, int], int] = {}  # the last message of each pair of units
        for stage, order in enumerate(orders):
            for slot in order:
                target = self._next(stage, slot)
                if target is None:
                    continue
                edge = min(stage, target[0]) if abs(stage - target[0]) == 1 else -1
                for number, pipe in enumerate(self._pipes):
                    ends = pipe[stage], pipe[target[0]]
                    src, dst = (np.full(edges, end) for end in ends)
                    late_s = self._late_s[number][edge]
                    exchange = Exchange("pp", np.array(ends), src, dst, size, flows, late_s)
                    pair = int(ends[0]), int(ends[1])
                    after = [before[pair]] if pair in before else []
                    message = self._add(Task(pair[0], exchange=exchange, share=1.0, after=after))
                    before[pair] = message
                    sent[int(ends[1]), target[1]] = message
        return sent

    def _next(self, stage: int, slot: _Slot) -> tuple[int, _Slot] | None:
        """Return the stage that waits for the result of a slot, and its own slot that waits."""
        step = {"F": 1, "W": 0}.get(slot.kind, -1)
        to, chunk = stage + step, slot.chunk
        if not 0 <= to < self._line.stages:
            to, chunk = to % self._line.stages, chunk + step
        if not step or not 0 <= chunk < self._line.chunks:
            return None
        return to, _Slot(slot.kind, chunk, slot.micro)

    def _stage(
        self, stage: int, order: Sequence[_Slot], sent: dict[tuple[int, _Slot], int]
    ) -> None:
        units = self._pipes[:, stage].tolist()
        inside = set(units)
        groups = {
            axis: [(n, group) for n, group in enumerate(made) if int(group.members[0]) in inside]
            for axis, made in self._groups.items()
        }
        first, last = _first_and_last(order)
        gathers = self._gathers(groups)
        for slot in order:
            is_forward, ends_state = slot.kind == "F", slot in last
            waited: list[dict[int, list[int]]] = []
            if is_forward and slot in first:
                waited = gathers.get(slot.chunk, [])
            elif slot.kind != "W" and (self._is_each_micro or (not is_forward and slot in first)):
                waited = self._gather(groups, self._again, slot)
            seconds = self._forward_s if is_forward else self._backward_s
            seconds /= 1 if slot.kind in "FB" else 2
            is_scattered = slot.kind in "BW" and (ends_state or self._is_each_micro)
            pieces = self._pieces if waited or is_scattered else 1
            for piece in range(pieces):
                made = {}
                for unit in units:
                    after = self._after(unit)
                    if not piece and (unit, slot) in sent:
                        after.append(sent[unit, slot])
                    if waited:
                        after += waited[piece].get(unit, [])
                    made[unit] = self._add(Task(unit, seconds / pieces, after=after))
                    self._last[unit] = made[unit]
                if is_scattered:
                    self._scatter(groups, made)
            if slot.kind != "W":
                self._wait_for_activations(groups)
            target = self._next(stage, slot)
            if target:
                for pipe in self._pipes:
                    message = sent[int(pipe[target[0]]), target[1]]
                    self.tasks[message].after += self._after(int(pipe[stage]))

    @property
    def _is_each_micro(self) -> bool:
        return self._request.training.sync is Sync.MICRO_BATCH

    @property
    def _parts(self) -> tuple[float, float, float]:
        """Share out the bytes of state: gathered in forward, gathered in backward, reduced."""
        training, model = self._request.training, self._request.model
        sent, reduced = DTYPE_BYTES["bf16"], training.gradient_bytes
        if model is not None:
            sent = MODEL_BYTES[model.dtype]
        match training.data_parallel:
            case DataParallel.DDP:
                return 0.0, 0.0, 1.0
            case DataParallel.ZERO3:
                whole = 2 * sent + reduced
                return sent / whole, sent / whole, reduced / whole
        if self._is_each_micro:
            reduced *= self._line.micro_batches  # of each micro-batch; parameters once
        return sent / (sent + reduced), 0.0, reduced / (sent + reduced)

    @property
    def _again(self) -> float:
        return self._parts[1]

    def _gathers(self, groups: _Groups) -> dict[int, list[dict[int, list[int]]]]:
        """Parameters of all chunks, gathered from the start; by chunk and piece, what each unit
        waits for. Where they are gathered for each micro-batch, for the first one."""
        return {
            chunk: found
            for chunk in range(self._line.chunks)
            if (found := self._gather(groups, self._parts[0], None))
        }

    def _gather(
        self, groups: _Groups, part: float, slot: _Slot | None
    ) -> list[dict[int, list[int]]]:
        """Gather one chunk in pieces. `slot`: before which it happens; None: at the start."""
        is_zero3 = self._request.training.data_parallel is DataParallel.ZERO3
        times = self._line.micro_batches if is_zero3 and self._is_each_micro else 1
        share = part / (self._line.chunks * self._pieces * times)
        if not share:
            return []
        waited: list[dict[int, list[int]]] = []
        for _ in range(self._pieces):
            by_unit: dict[int, list[int]] = {}
            for axis, of_axis in groups.items():
                if axis_of(axis) == REPLICATE or not self._state_shares[axis]:
                    continue
                for n, group in of_axis:
                    before = [] if slot is None else self._ends(group)
                    key = (axis, n, "gather" if slot is None else "again")
                    made = self._exchange(key, group, share * self._state_shares[axis], before)
                    for unit in group.members.tolist():
                        by_unit.setdefault(unit, []).append(made)
            waited.append(by_unit)
        return waited if waited[0] else []

    def _scatter(self, groups: _Groups, made: dict[int, int]) -> None:
        """Reduce one piece of a chunk's gradients, axis by axis from the inside."""
        times = self._line.micro_batches if self._is_each_micro else 1
        share = self._parts[2] / (self._line.chunks * self._pieces * times)
        before = {unit: [task] for unit, task in made.items()}
        for axis, of_axis in groups.items():
            if not self._state_shares[axis]:
                continue
            part = share if axis_of(axis) != REPLICATE else share / self._parts[2]
            for n, group in of_axis:
                after = [task for unit in group.members.tolist() for task in before[unit]]
                part_of_axis = part * self._state_shares[axis]
                task = self._exchange((axis, n, "scatter"), group, part_of_axis, after)
                for unit in group.members.tolist():
                    before[unit] = [task]

    def _exchange(
        self, key: tuple[str, int, str], group: Exchange, share: float, after: list[int]
    ) -> int:
        """Add a part of an exchange, after the one before it of the same group and kind."""
        if key in self._ended:
            after = [*after, self._ended[key]]
        first = int(group.members[0])
        task = self._add(Task(first, exchange=group, share=share, after=after, is_state=True))
        self._ended[key] = task
        return task

    def _after(self, unit: int) -> list[int]:
        last = self._last[unit]
        return [] if last is None else [last]

    def _ends(self, group: Exchange) -> list[int]:
        return [task for unit in group.members.tolist() for task in self._after(unit)]

    def _wait_for_activations(self, groups: _Groups) -> None:
        """Exchange what a micro-batch's layers need of each other; the next slot waits for it."""
        for axis, of_axis in groups.items():
            share = (1 - self._state_shares[axis]) / (2 * self._slots)
            for _, group in of_axis if share else ():
                task = self._add(
                    Task(
                        int(group.members[0]), exchange=group, share=share, after=self._ends(group)
                    )
                )
                for unit in group.members.tolist():
                    self._last[unit] = task


_Groups = dict[str, list[tuple[int, Exchange]]]


def _first_and_last(order: Sequence[_Slot]) -> tuple[set[_Slot], set[_Slot]]:
    """The first slot of each kind and chunk, and the last one."""
    first = {(slot.kind, slot.chunk): slot for slot in reversed(order)}
    last = {(slot.kind, slot.chunk): slot for slot in order}
    return set(first.values()), set(last.values())


def _exchange(
    fabric: Fabric, traffic: AxisTraffic, members: Ints, host_by_unit: Ints, width: int
) -> Exchange:
    """The edges of one group, between units."""
    per_host = fabric.gpus_per_host
    # A place for each unit on its host, in the order of units: what a hierarchy is made of.
    gpus = host_by_unit[members] * per_host + _place_on_host(host_by_unit[members])
    edges = list(edges_of(fabric, traffic, gpus[None, :]))
    source = np.concatenate([edge[0] for edge in edges])
    target = np.concatenate([edge[1] for edge in edges])
    size = np.concatenate(
        [np.broadcast_to(np.asarray(e[2], dtype=float), e[0].shape) for e in edges]
    )
    keep = size > 0
    order = np.argsort(gpus)
    src, dst = (members[order[np.searchsorted(gpus[order], g[keep])]] for g in (source, target))
    flows = np.full(len(src), width, dtype=np.int64)
    return Exchange(traffic.axis, members, src, dst, size[keep] * width, flows)


def _place_on_host(hosts: Ints) -> Ints:
    """How many earlier members lie on the same host."""
    return np.array([np.count_nonzero(hosts[:i] == host) for i, host in enumerate(hosts)])
