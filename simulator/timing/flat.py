"""Two numbers for every gang: a restart, and the time between two checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from placement.workload.request import Request
from scheduler.core import State
from scheduler.core.fold.attempts import AttemptLeft, PlacedGang


class FlatTiming:
    """Timing by the costs that the scheduler counts with, wherever a gang lies and however large it
    is."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._work_host_ns: dict[str, int] = {}
        self._end_ns: dict[str, int] = {}

    # ModelledTiming has the same methods; the launcher calls either, in the order of the log.

    def expect(self, name: str, run_ns: int, request: Request, hosts: int) -> None:
        """Note an admitted job of this shape, which would run so long on so many hosts if
        undisturbed."""
        self._work_host_ns[name] = run_ns * hosts

    def begin(self, run: PlacedGang) -> None:
        """Note that an attempt starts now."""
        state = self._state()
        account = state.jobs[run.name].goodput
        # Of a part of a host, its own time says it: that of hosts is shared.
        done_host_ns = account.time.productive if run.gpus else account.hosts.productive
        work_ns = -(-(self._work_host_ns[run.name] - done_host_ns) // len(run.hosts))
        ahead_ns = state.tenants.preemption.costs.overhead_ns(run.attempt) + work_ns
        self._end_ns[run.name] = run.start_ns + ahead_ns

    def halt(self, name: str, now_ns: int) -> None:
        """Let the job's ranks stand still from now on, whether anybody knows or not: the account
        knows it."""

    def leave(self, left: AttemptLeft) -> None:
        """Note that an attempt is over."""
        self._end_ns.pop(left.run.name, None)

    def end_ns(self, name: str, now_ns: int) -> int:
        """Return when the work of an attempt will be done if nothing changes."""
        return self._end_ns[name]

    def changed(self) -> Sequence[str]:
        """Return the running jobs whose `end_ns` has changed since it was last asked for."""
        return ()

    def forget(self, name: str) -> None:
        """Forget a job that is over."""
        self._work_host_ns.pop(name, None)
