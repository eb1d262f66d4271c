"""A scheduler and its log under random commands: what the machines of this folder drive."""

from collections.abc import Iterable
from random import Random

from scheduler.core import (
    Conflict,
    Plan,
    Rejected,
    SchedulingOptions,
    State,
    admit,
    apply,
    commit,
    decide,
    explain,
    replay,
)
from scheduler.core.explain.whatif import run_to_rest
from scheduler.core.model.commands import Command
from scheduler.core.model.events import Event
from scheduler.core.model.job import SECOND_NS
from scheduler.eventlog import snapshots
from scheduler.eventlog.codec import decode, encode


def tried(state: State, now_ns: int, *commands: Command) -> State:
    """The state after those of the commands that are admitted."""
    for command in commands:
        answer = admit(state, command, now_ns)
        state = state if isinstance(answer, Rejected) else replay(answer, state)
    return state


def reached(
    state: State, commands: Iterable[Command], options: SchedulingOptions, pace_ns: int = 0
) -> State:
    """The state after these commands, each of which is decided on before the next comes."""
    for number, command in enumerate(commands):
        now_ns = number * pace_ns
        state = run_to_rest(tried(state, now_ns, command), now_ns, options)
    return state


class Driver:
    """Calls the four functions as the service does. Which events may be, and what holds after
    them, its heirs say. `stale`: plans that are committed later, if at all."""

    log: list[Event]

    def begin(self, *events: Event, limits: SchedulingOptions | None = None) -> None:
        self.now_ns, self.limits = 0, limits or SchedulingOptions()
        self.state, self.log, self.stale = State.empty(), [], list[Plan]()
        self.record(events)

    def check_event(self, before: State, event: Event) -> None:
        """Fail unless `event`, which has just been applied, might be."""

    def check_state(self) -> None:
        """Fail unless the state after some events is as it must be."""

    def record(self, events: Iterable[Event]) -> None:
        for event in events:
            before, self.state = self.state, apply(self.state, event)
            self.log.append(event)
            self.check_event(before, event)
        self.check_state()

    def ask(self, command: Command) -> tuple[Event, ...]:
        """The events of the command, none if it is refused."""
        answer = admit(self.state, command, self.now_ns)
        if isinstance(answer, Rejected):
            return ()
        self.record(answer)
        return answer

    def decision(self) -> Plan:
        plan = decide(self.state, self.now_ns, self.limits)
        assert plan.version == self.state.version
        return plan

    def whole(self, plan: Plan) -> tuple[Event, ...]:
        """The events of a plan on its own version, which commits whole."""
        answer = commit(self.state, plan, self.now_ns)
        assert not isinstance(answer, Conflict), answer
        return answer

    def late(self, plan: Plan) -> tuple[Event, ...]:
        """The events of what still holds of a plan of some time ago."""
        answer = commit(self.state, plan, self.now_ns)
        return () if isinstance(answer, Conflict) else answer

    def until_settled(self) -> Plan:
        """Decide and commit until nothing is left to do; the last plan."""
        for _ in range(40):
            plan = self.decision()
            self.record(self.whole(plan))
            if not plan.actions:
                return plan
        raise AssertionError("decisions go on for ever")

    def act(self, random: Random) -> None:
        """Ask for what one round brings."""

    def turn(self) -> None:
        """Decide and commit."""

    def commit_stale(self) -> None:
        """Commit what still holds of a plan of some time ago."""

    def explain(self) -> None:
        for name in self.state.index.queue:
            reason = explain(self.state, name, self.now_ns, self.limits)
            assert reason.sentence
            assert reason.start_ns is None or reason.start_ns >= self.now_ns
            assert {*reason.waits_for} <= {*self.state.jobs} - {name}

    def live(
        self,
        random: Random,
        rounds: int,
        kept: float = 0.2,
        late: float = 0.2,
        paces_s: tuple[int, ...] = (0, 5, 40),
    ) -> None:
        """`kept`: how often a plan is kept back; `late`: how often one of those is committed."""
        for _ in range(rounds):
            self.act(random)
            self.now_ns += random.choice(paces_s) * SECOND_NS
            if random.random() < kept:
                self.stale.append(self.decision())
            if random.random() < late:
                self.commit_stale()
            if random.random() < 0.6:
                self.turn()
            if random.random() < 0.1:
                self.explain()
        self.check_replay()

    def check_replay(self) -> None:
        """The log is the state, as it is stored, and from a snapshot in its middle."""
        assert replay(decode(*encode(event)) for event in self.log) == self.state
        middle = len(self.log) // 2
        body = snapshots.encode(replay(self.log[:middle]), self.now_ns)
        assert replay(self.log[middle:], snapshots.decode(body)[0]) == self.state
