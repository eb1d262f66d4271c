"""Plays the tasks of a step on links that are shared fairly: a fluid, max-min simulation.

All that is sent at one time shares the links that it meets: each message gets as much as the
tightest of them leaves it when all get equal parts, and what others leave over is given to those
that can use it (max-min fairness; Bertsekas and Gallager, Data Networks, 6.5.2). Whenever a
message begins or ends all shares change. Where the fabric file has latencies, an exchange ends so
much later than its bytes. Packets and queues are left out.

    NVLink of each rank       out, in                  between ranks of a scale-up domain
    network cards of a host   out, in                  between hosts of different ones
    uplinks                   up, down, of each tier   where the domains differ
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import inf, isfinite

import numpy as np

from muster.structs import struct
from network.step_tasks import Exchange, StepTasks, step_tasks
from network.wiring import Floats
from placement import BadInput
from placement.fabric.constraints import with_gang_view
from placement.fabric.links import seconds_over
from placement.fabric.tree import Fabric, Ints
from placement.objective.axis_loads import BYTES_PER_S
from placement.workload.request import Request

MOST_TASKS = 2_000_000
SAME = 1e-9  # of a share or a time: what counts as equal
GRAIN = 1e-4  # of a step, of large jobs: messages that end within it end together
LARGE = 1_000  # units
# How far weights of groups lie apart, where no rate control shares exactly evenly. Flows that are
# exactly alike end together and wait together; any difference lets some go while others compute
# (Rajasekaran et al., HotNets 2022), and 0.1 does as much as 1 (docs/lab.md).
UNEVEN = 0.1
GOLDEN = 0.6180339887498949


@struct(frozen=True, slots=True)
class SimulatedStep:
    """`seconds`: until the last task has ended, infinite over a link that is down. `messages`:
    that were sent; `events`: how often shares changed."""

    seconds: float
    messages: int
    events: int


@with_gang_view
def simulate_step(
    fabric: Fabric, request: Request, hosts: Sequence[int], compute_s: float
) -> SimulatedStep:
    """Simulate the step of a gang on the hosts of its blocks.

    Raises: BadInput as `step_tasks`, and on a job of too many tasks. Cost: O(events x messages at
    one time).
    """
    return play(fabric, step_tasks(fabric, request, hosts, compute_s))


def play(fabric: Fabric, step: StepTasks) -> SimulatedStep:
    """Simulate the step of these tasks. Raises: BadInput on too many of them."""
    if len(step.tasks) > MOST_TASKS:
        raise BadInput(
            "parallelism", f"{len(step.tasks):,} tasks a step; {MOST_TASKS:,} can be simulated"
        )
    return _Player(fabric, step).play()


class _Player:
    """A simulation in progress. Messages under way are rows of arrays."""

    def __init__(self, fabric: Fabric, step: StepTasks) -> None:
        self._tasks = step.tasks
        self._links = _Links(fabric, step)
        self._missing = [len(task.after) for task in step.tasks]
        self._next: list[list[int]] = [[] for _ in step.tasks]
        for number, task in enumerate(step.tasks):
            for before in task.after:
                self._next[before].append(number)
        self._left = [0] * len(step.tasks)  # messages of each exchange that are under way
        self._computing: list[tuple[float, int]] = []
        width = self._links.width
        self._path: Ints = np.empty((0, width), dtype=np.int64)
        self._bytes, self._flows = np.empty(0), np.empty(0)
        self._owner: Ints = np.empty(0, dtype=np.int64)
        self._rates = np.empty(0)
        self._ranks_per_unit = step.ranks_per_unit
        self._is_large = len(step.host_by_unit) >= LARGE
        self._messages = self._events = 0

    def play(self) -> SimulatedStep:
        now, undone = 0.0, len(self._tasks)
        ready = [n for n, missing in enumerate(self._missing) if not missing]
        while undone:
            undone -= self._begin(ready, now)
            if not undone:
                break
            if not len(self._rates) and len(self._bytes):
                self._share()
            ends = seconds_over(self._bytes, self._rates)
            first_s = float(ends.min()) if len(ends) else inf
            until_s = min(now + first_s, self._computing[0][0] if self._computing else inf)
            if not isfinite(until_s):
                return SimulatedStep(inf, self._messages, self._events)
            ready = self._advance(now, until_s, ends)
            now = until_s
            undone -= len(ready)
            ready = self._released(ready)
        return SimulatedStep(now, self._messages, self._events)

    def _begin(self, ready: list[int], now: float) -> int:
        """Begin tasks. Returns how many of them, and of those that they release, end at once."""
        ended, paths, sizes, flows, owners = 0, [], [], [], []
        while ready:
            number = ready.pop()
            task = self._tasks[number]
            exchange = task.exchange
            if exchange is not None and len(exchange.src):
                paths.append(self._links.path(exchange))
                sizes.append(exchange.bytes * task.share)
                flows.append(exchange.flows * self._weight(exchange))
                owners.append(np.full(len(exchange.src), number))
                self._left[number] = len(exchange.src)
            elif task.seconds > 0:
                heapq.heappush(self._computing, (now + task.seconds, number))
            else:
                ended += 1
                ready += self._released([number])
        if paths:
            self._path = np.concatenate([self._path, *paths])
            self._bytes = np.concatenate([self._bytes, *sizes])
            self._flows = np.concatenate([self._flows, *flows])
            self._owner = np.concatenate([self._owner, *owners])
            self._rates = np.empty(0)
            self._messages += sum(map(len, owners))
        return ended

    def _weight(self, exchange: Exchange) -> float:
        """The weight of a group's messages on links, spread by its first member; 1 in large jobs,
        where too few messages would end together."""
        if self._is_large:
            return 1.0
        first_rank = int(exchange.members[0]) * self._ranks_per_unit
        return 1 + UNEVEN * (2 * (first_rank * GOLDEN % 1) - 1)

    def _share(self) -> None:
        self._rates = max_min_rates(self._path, self._flows, self._links.bytes_per_s)
        self._events += 1

    def _advance(self, now: float, until_s: float, ends: Floats) -> list[int]:
        """Let time pass. Returns the tasks that end."""
        done: list[int] = []
        grain = SAME * max(until_s, 1e-9)
        if self._is_large:
            grain = max(grain, GRAIN * until_s)
        while self._computing and self._computing[0][0] <= until_s + SAME * until_s:
            done.append(heapq.heappop(self._computing)[1])
        if len(self._bytes):
            over = ends <= until_s - now + grain
            if over.any():
                for number in self._owner[over].tolist():
                    self._left[number] -= 1
                    late_s = self._late_s(number) if not self._left[number] else 0.0
                    if late_s:  # the last bytes have left, and arrive later
                        heapq.heappush(self._computing, (until_s + late_s, number))
                    elif not self._left[number]:
                        done.append(number)
                stay = ~over
                self._bytes = self._bytes[stay] - self._rates[stay] * (until_s - now)
                self._path, self._owner = self._path[stay], self._owner[stay]
                self._flows, self._rates = self._flows[stay], np.empty(0)
            else:
                self._bytes = self._bytes - self._rates * (until_s - now)
        return done

    def _late_s(self, number: int) -> float:
        """Seconds that messages of a task take one after the other, beside their bytes."""
        task = self._tasks[number]
        return task.exchange.latency_s * task.share if task.exchange else 0.0

    def _released(self, ended: Sequence[int]) -> list[int]:
        """Tasks for which these were the last to wait for."""
        free: list[int] = []
        for number in ended:
            for after in self._next[number]:
                self._missing[after] -= 1
                if not self._missing[after]:
                    free.append(after)
        return free


class _Links:
    """All links of a fabric by number, and the way of a message over them."""

    def __init__(self, fabric: Fabric, step: StepTasks) -> None:
        self._fabric, self._host = fabric, step.host_by_unit
        units, hosts = len(step.host_by_unit), fabric.host_count
        nvlink = fabric.by_host.scale_up_gbps[self._host] * BYTES_PER_S * step.ranks_per_unit
        cards = fabric.injection_bytes_per_s
        rates = [nvlink, nvlink, cards, cards]
        self._card = 2 * units
        self._tiers = []
        at = 2 * units + 2 * hosts
        for tier in fabric.tiers:
            self._tiers.append((at, tier.domain_by_host, len(tier.domains)))
            rates += [tier.uplink_bytes_per_s] * 2
            at += 2 * len(tier.domains)
        # One more for ways that are shorter than others, which is never full.
        self.bytes_per_s = np.append(np.concatenate(rates), inf)
        self._none, self._units = at, units
        self.width = 2 + 2 * len(self._tiers)
        self._paths: dict[int, Ints] = {}

    def path(self, exchange: Exchange) -> Ints:
        """Links of each message. Shape: (messages, width)."""
        known = self._paths.get(id(exchange))
        if known is None:
            known = self._paths[id(exchange)] = self._path(exchange)
        return known

    def _path(self, exchange: Exchange) -> Ints:
        src, dst = exchange.src, exchange.dst
        near, far = self._host[src], self._host[dst]
        joined = self._fabric.scale_up_by_host
        is_inside = joined[near] == joined[far]
        path = np.full((len(src), self.width), self._none, dtype=np.int64)
        path[:, 0] = np.where(is_inside, src, self._card + near)
        path[:, 1] = np.where(
            is_inside, self._units + dst, self._card + self._fabric.host_count + far
        )
        for column, (at, domain, count) in enumerate(self._tiers, start=1):
            crosses = ~is_inside & (domain[near] != domain[far])
            path[:, 2 * column] = np.where(crosses, at + domain[near], self._none)
            path[:, 2 * column + 1] = np.where(crosses, at + count + domain[far], self._none)
        return path


def max_min_rates(path: Ints, flows: Floats, bytes_per_s: Floats) -> Floats:
    """Return max-min fair rates of messages. `path`: links of each, shape (messages, links of one);
    `flows`: how many equal ones each row stands for; `bytes_per_s`: of each link, infinite for
    none.

    Links at which all that passes has its tightest place are settled together, round by round.
    """
    rates, left = np.zeros(len(path)), bytes_per_s.copy()
    unset = np.arange(len(path))
    while len(unset):
        ways, many = path[unset], flows[unset]
        load = np.bincount(ways.ravel(), np.repeat(many, ways.shape[1]), len(left))
        level = np.divide(left, load, out=np.full(len(left), inf), where=load > 0)
        each = level[ways].min(axis=1)
        tightest = np.full(len(left), inf)
        np.minimum.at(tightest, ways.ravel(), np.repeat(each, ways.shape[1]))
        is_settled = (tightest >= level * (1 - SAME)) & (load > 0) & np.isfinite(level)
        now = (is_settled[ways] & (level[ways] <= each[:, None] * (1 + SAME))).any(axis=1)
        rates[unset[now]] = each[now] * many[now]
        used = np.repeat(rates[unset[now]], ways.shape[1])
        left = np.maximum(left - np.bincount(ways[now].ravel(), used, len(left)), 0.0)
        unset = unset[~now]
    return rates
