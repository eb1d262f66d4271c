"""The scheduler on a virtual clock: admit, decide, commit and apply, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from placement import BadInput
from placement.fabric.tree import Fabric
from scheduler.core import (
    Conflict,
    Plan,
    Rejected,
    SchedulingOptions,
    State,
    Tenants,
    admit,
    apply,
    commit,
    decide,
)
from scheduler.core.capacity.placer import make_placer
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.events import Event, FabricLoaded
from simulator.kernel import SimulationKernel
from simulator.placers import PlacerFactory
from simulator.sim_events import (
    COMMIT,
    DECIDE,
    DecideAgain,
    DecisionDue,
    PlanReady,
)

Sink = Callable[[Event, State], None]  # the state is the one after the event


class Engine:
    """One scheduler, which writes its log to `sink`. Raises: BadInput on tenants that `fabric`
    cannot have.

    A decision is due when the log has grown since the last one, by more than what a last plan says,
    or when the last one asked for it, and takes `decision_ns`, or as long as it does take when that
    is None; commands that arrive meanwhile are admitted at once, and the commit re-checks the plan
    against them, as in the live service. `start`: the state that it goes on from, with its fabric
    and tenants; None: an empty cluster.
    """

    def __init__(
        self,
        kernel: SimulationKernel,
        fabric: Fabric,
        options: SchedulingOptions,
        sink: Sink,
        decision_ns: int | None = 0,
        tenants: Tenants | None = None,
        make_placer: PlacerFactory = make_placer,
        start: State | None = None,
    ) -> None:
        self.kernel = kernel
        self.state = State.empty() if start is None else start
        self._options = options
        self._sink = sink
        self._decision_ns = decision_ns
        self._placing = make_placer
        self._is_deciding = False
        kernel.on(DecisionDue, self._decide)
        kernel.on(PlanReady, lambda due: self._commit(due.plan))
        kernel.on(DecideAgain, self._wake)
        if start is None:
            self._begin(fabric, tenants)
        else:
            self._wake()

    def _begin(self, fabric: Fabric, tenants: Tenants | None) -> None:
        self._record([FabricLoaded(self.kernel.now_ns, fabric.spec)])
        if tenants is not None and (refusal := self.send(LoadTenants(tenants))):
            raise BadInput("tenants", refusal.message)

    def send(self, command: Command) -> Rejected | None:
        """Admit `command` now. Return the refusal, if it is refused."""
        answer = admit(self.state, command, self.kernel.now_ns)
        if isinstance(answer, Rejected):
            return answer
        self._record(answer)
        if answer:
            self._wake()
        return None

    def _record(self, events: Iterable[Event]) -> None:
        for event in events:
            self.state = apply(self.state, event)
            self._sink(event, self.state)

    def _wake(self, _: DecideAgain | None = None) -> None:
        if not self._is_deciding:
            self._is_deciding = True
            self.kernel.at(self.kernel.now_ns, DecisionDue(), DECIDE)

    def _decide(self, _: DecisionDue) -> None:
        begin_ns = time.perf_counter_ns()
        find = self._placing(self.state, self._options)
        plan = decide(self.state, self.kernel.now_ns, self._options, find)
        took_ns = time.perf_counter_ns() - begin_ns
        wait_ns = took_ns if self._decision_ns is None else self._decision_ns
        if wait_ns:
            self.kernel.at(self.kernel.now_ns + wait_ns, PlanReady(plan), COMMIT)
        else:  # whatever else is due now comes before decisions
            self._commit(plan)

    def _commit(self, plan: Plan) -> None:
        before = self.state.version
        self._is_deciding = False
        answer = commit(self.state, plan, self.kernel.now_ns)
        if not isinstance(answer, Conflict):
            self._record(answer)
        if not plan.leaves_nothing(before, self.state.version):
            self._wake()
        elif plan.next_decision_ns is not None:
            self.kernel.at(max(plan.next_decision_ns, self.kernel.now_ns), DecideAgain())
