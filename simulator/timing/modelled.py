"""The time model at work: how far each gang is, and what it waits for.

A gang's clock counts work and checkpoint writes; it runs at 1 / stretch of real time, the
stretch being that of its placement among its neighbours (network.py), and slower where its
writes wait for those of others (store.py). When a gang that shares uplinks or the store
starts or stops, the clocks of those beside it change pace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placement.fabric.tree import Fabric
from placement.workload.replicas import sized
from placement.workload.request import Request
from scheduler.core.fold.attempts import AttemptLeft, PlacedGang
from simulator.timing.network import ALONE, GangLoad, Link, NetworkModel
from simulator.timing.store import CheckpointStore, Crowding
from simulator.timing.time_account import EMPTY, TimeAccount
from simulator.timing.times_file import TimeModel
from simulator.traces.record import SECOND_NS

NOTHING = EMPTY, EMPTY
MILLION = 1_000_000  # clocks run at whole parts per million


@dataclass(slots=True)
class _Clock:
    """One attempt. `clock_ns` at `at_ns`, running at `rate` ppm; it starts at `ready_ns`.

    One period of the clock is `interval_ns` of work and `write_ns` of writing.
    """

    run: PlacedGang
    load: GangLoad
    work_ns: int
    ready_ns: int
    at_ns: int
    interval_ns: int
    write_ns: int
    clock_ns: int = 0
    rate: int = MILLION
    halt_ns: int | None = None
    store_ppm: int = 0  # of real time: writes wait for the store that others use
    store_ns: int = 0

    def settle(self, now_ns: int) -> None:
        """Count up to now, or to when it came to stand still."""
        until_ns = now_ns if self.halt_ns is None else min(now_ns, self.halt_ns)
        elapsed_ns = until_ns - max(self.at_ns, self.ready_ns)
        if elapsed_ns > 0:
            self.clock_ns += elapsed_ns * self.rate // MILLION
            self.store_ns += elapsed_ns * self.store_ppm // MILLION
        self.at_ns = max(self.at_ns, until_ns)

    @property
    def writes(self) -> int:
        """Checkpoints until the work is done."""
        return max(0, self.work_ns - 1) // self.interval_ns

    def set_pace(self, stretch: float, store: Crowding, now_ns: int) -> bool:
        """Go on from `now_ns` at the pace at which steps take `stretch` times as long, with writes
        that wait for the store. Whether that is another pace."""
        period_ns = self.interval_ns + self.write_ns
        waiting_ns = self.write_ns * (store.stretch - 1)
        waiting_ns = max(waiting_ns, period_ns * (store.demand - stretch))
        real_ns = period_ns * stretch + waiting_ns
        rate = max(1, round(MILLION * period_ns / real_ns))
        store_ppm = round(MILLION * waiting_ns / real_ns)
        if (rate, store_ppm) == (self.rate, self.store_ppm):
            return False
        self.settle(now_ns)
        self.rate, self.store_ppm = rate, store_ppm
        return True

    @property
    def worked_ns(self) -> int:
        """Work until the clock was last settled, writes aside."""
        writes, part_ns = divmod(self.clock_ns, self.interval_ns + self.write_ns)
        return min(self.work_ns, writes * self.interval_ns + min(part_ns, self.interval_ns))

    @property
    def end_ns(self) -> int:
        """When the work is done at this pace."""
        ahead_ns = self.work_ns + self.writes * self.write_ns - self.clock_ns
        return max(self.at_ns, self.ready_ns) - (-max(0, ahead_ns) * MILLION // self.rate)

    def spent(self, left: AttemptLeft) -> TimeAccount:
        """Return where the attempt's time went. Its clock is settled."""
        ran_ns = left.ran_ns
        halt_ns = self.run.start_ns + ran_ns if self.halt_ns is None else self.halt_ns
        alive_ns = max(0, min(ran_ns, halt_ns - self.run.start_ns))
        restart_ns = min(alive_ns, self.ready_ns - self.run.start_ns)
        writes, part_ns = divmod(self.clock_ns, self.interval_ns + self.write_ns)
        work_ns = writes * self.interval_ns + min(part_ns, self.interval_ns)
        kept_ns = writes * self.interval_ns
        if left.is_complete:
            work_ns = kept_ns = min(self.work_ns, alive_ns - restart_ns)
        writing_ns = max(0, self.clock_ns - work_ns)
        slowed_ns = alive_ns - restart_ns - work_ns - writing_ns
        store_ns = slowed_ns if self.load is ALONE else min(self.store_ns, max(0, slowed_ns))
        return TimeAccount(
            productive=kept_ns,
            rework=work_ns - kept_ns,
            detection=ran_ns - alive_ns,
            restart=restart_ns,
            checkpoint=writing_ns + store_ns,
            network=slowed_ns - store_ns,
        )


class ModelledTiming:
    """Timing of the gangs of one replay by a time model. Memory: O(live jobs)."""

    def __init__(self, fabric: Fabric, times: TimeModel) -> None:
        self._fabric = fabric
        self._times = times
        self._network = NetworkModel(fabric, times.network.comm_share)
        self.time = EMPTY  # of attempts that are over
        self.host_time = EMPTY
        self._spent: dict[str, tuple[TimeAccount, TimeAccount]] = {}  # of live jobs
        self._requests: dict[str, Request] = {}
        self._remaining_host_ns: dict[str, int] = {}
        self._clocks: dict[str, _Clock] = {}
        self._on: dict[Link, dict[str, float]] = {}
        self._store = CheckpointStore(fabric, times.checkpoint)
        self._last_hosts: dict[str, tuple[str, ...]] = {}
        self._changed: dict[str, None] = {}
        self._stuck: set[str] = set()  # jobs whose last attempt kept nothing

    def expect(self, name: str, run_ns: int, request: Request, hosts: int) -> None:
        self._requests[name] = request
        self._remaining_host_ns[name] = run_ns * hosts

    def begin(self, run: PlacedGang) -> None:
        request = self._request(run)
        work_ns = -(-self._remaining_host_ns[run.name] // len(run.hosts))
        load = self._load(request, run)
        ready_ns = run.start_ns + self._start_ns(run, request)
        point = self._times.checkpoint
        write_s = self._store.write_s(request) + point.stall_s
        self._clocks[run.name] = clock = _Clock(
            run,
            load,
            work_ns,
            ready_ns,
            run.start_ns,
            round(point.interval_s * SECOND_NS),
            round(write_s * SECOND_NS),
        )
        self._last_hosts[run.name] = run.hosts
        for sent in load.sent:
            self._on.setdefault(sent.link, {})[run.name] = sent.mean
        writers = self._store.begin(run.name, request) if clock.writes else ()
        self._pace((*self._sharing(load), *writers), run.start_ns)

    def _load(self, request: Request, run: PlacedGang) -> GangLoad:
        is_known = self._times.network.is_modelled
        return self._network.load(request, run.hosts) if is_known else ALONE

    def halt(self, name: str, now_ns: int) -> None:
        clock = self._clocks[name]
        if clock.halt_ns is not None:
            return
        clock.settle(now_ns)
        clock.halt_ns = now_ns
        for sent in clock.load.sent:
            del self._on[sent.link][name]
        self._changed.pop(name, None)
        self._pace((*self._sharing(clock.load), *self._store.end(name)), now_ns)

    def leave(self, left: AttemptLeft) -> None:
        name, hosts = left.run.name, len(left.run.hosts)
        self.halt(name, left.run.start_ns + left.ran_ns)
        clock = self._clocks.pop(name)
        spent = clock.spent(left)
        self._remaining_host_ns[name] -= spent.productive * hosts
        (self._stuck.discard if spent.productive else self._stuck.add)(name)
        time, host_time = self.spent(name)
        on_hosts = spent.on(hosts, *self._part(left.run))
        self._spent[name] = time + spent, host_time + on_hosts
        self.time += spent
        self.host_time += on_hosts

    def _part(self, run: PlacedGang) -> tuple[int, int]:
        """How many GPUs it has of a host that others share, and of how many; (0, 1) of a gang."""
        if not run.gpus:
            return 0, 1
        return len(run.gpus), int(self._fabric.by_host.gpus[self._fabric.indices(run.hosts)[0]])

    def end_ns(self, name: str, now_ns: int) -> int:
        clock = self._clocks[name]
        clock.settle(now_ns)
        return max(now_ns, clock.end_ns)

    def changed(self) -> Sequence[str]:
        names = tuple(self._changed)
        self._changed.clear()
        return names

    def forget(self, name: str) -> None:
        for kept in (self._requests, self._remaining_host_ns, self._last_hosts, self._spent):
            kept.pop(name, None)
        self._stuck.discard(name)

    def has_advanced(self, name: str) -> bool:
        """Return whether some work of the last attempt of a job was saved."""
        return name not in self._stuck

    def spent(self, name: str) -> tuple[TimeAccount, TimeAccount]:
        """Return where the time of a job's ended attempts went, per host and of all hosts;
        known until it is forgotten."""
        return self._spent.get(name, NOTHING)

    def worked_host_ns(self, now_ns: int) -> int:
        """Return the work of all gangs until now: of ended attempts what was saved, of others
        all."""
        for clock in self._clocks.values():
            clock.settle(now_ns)
        live = 0
        for clock in self._clocks.values():
            part, of = self._part(clock.run)
            live += clock.worked_ns * (part or len(clock.run.hosts)) // of
        return self.host_time.productive + live

    def _request(self, run: PlacedGang) -> Request:
        """At the size that the gang has now."""
        request = self._requests[run.name]
        needed = request.hosts_needed(self._fabric.gpus_per_host)
        return sized(request, request.parallelism.dp * len(run.hosts) // needed)

    def _start_ns(self, run: PlacedGang, request: Request) -> int:
        if run.attempt == 1:
            return 0
        times, point = self._times, self._times.checkpoint
        kind, rate = point.kind, point.load_gb_per_s
        if kind == "local" and run.hosts != self._last_hosts.get(run.name):
            kind, rate = "remote", point.remote_gb_per_s
        load_s = self._store.transfer_s(request, kind, rate)
        if kind == "remote":
            load_s *= self._store.load_stretch(request)
        init_s = times.init_s(request.parallelism.world_size)
        return round((times.process_start_s + init_s + load_s + times.warmup_s) * SECOND_NS)

    def _sharing(self, load: GangLoad) -> list[str]:
        """Gangs on the uplinks of this load."""
        return [name for sent in load.sent for name in self._on[sent.link]]

    def _pace(self, names: Iterable[str], now_ns: int) -> None:
        """New rates for these gangs. Cost: O(gangs on their uplinks)."""
        for name in dict.fromkeys(names):
            clock = self._clocks[name]
            load_by_link = {
                sent.link: sum(
                    m for neighbour, m in self._on[sent.link].items() if neighbour != name
                )
                for sent in clock.load.sent
            }
            stretch = clock.load.stretch_with(load_by_link)
            if clock.set_pace(stretch, self._store.crowding(name), now_ns):
                self._changed[name] = None
