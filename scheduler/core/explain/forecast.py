"""When waiting jobs start: the scheduler itself, run ahead on a copy of the state.

Every running gang ends at its time limit, as far as anybody knows; windows open and close, begin
times come, hosts under repair are back after the mean time of the repairs so far, and whoever
starts ends at its limit too. Nobody submits, cancels or fails. At each of these moments the copy is
decided and committed as in earnest, with limits, quotas, reservations and windows; only placements
are searched for less long. A forecast ends with the queue, or with its budget: who waits still then
does not start before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.structs import replace, struct
from scheduler.core.admission.admit import admit
from scheduler.core.capacity.outlook import releases, repairs
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.decide import decide
from scheduler.core.fold.apply import replay
from scheduler.core.model.commands import CancelJob, Command, EndJob, ReportHost
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Start
from scheduler.core.model.rejected import Rejected
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.rules.eligibility import next_eligible_ns
from scheduler.core.wording import duration

LEAST_SEARCH = 50  # of a placement here: one part in so many of the search of a decision
MOST_DECISIONS = 2_000


@struct(frozen=True, slots=True)
class ForecastStart:
    """`name` starts at `start_ns` and ends at `end_ns`. `after`: the gangs that end when it starts;
    empty where it starts for another reason."""

    name: str
    start_ns: int
    end_ns: int
    after: tuple[str, ...] = ()


@struct(frozen=True, slots=True)
class Forecast:
    """Starts that a run of the scheduler on a copy foresees. `waiting`: the jobs that it is about.
    `starts`: the first start of each, by name. `until_ns`: jobs without a start do not start before
    then; None where nothing would change any more."""

    waiting: frozenset[str]
    starts: dict[str, ForecastStart]
    until_ns: int | None = None

    def chain(self, name: str) -> tuple[ForecastStart, ...]:
        """The starts on which that of `name` waits, the first one first and its own last: each
        ends when the next one starts."""
        links = list[ForecastStart]()
        start = self.starts.get(name)
        while start is not None:
            links.append(start)
            start = next((self.starts[n] for n in start.after if n in self.starts), None)
        return tuple(reversed(links))


def assumption(assumed_limit_s: int) -> str:
    """Return the assumptions of a forecast, in words."""
    assumed = duration(assumed_limit_s)
    return (
        f"if jobs run to their time limits ({assumed} where none is stated), and nobody submits,"
        " cancels or fails"
    )


def forecast(
    state: State,
    now_ns: int,
    options: SchedulingOptions,
    is_over: Callable[[], bool] = lambda: False,
) -> Forecast:
    """Foresee the starts of jobs that wait, from now on. `is_over`: asked before each decision,
    whether the time that there is for this is spent.

    Cost: the decisions that would follow, MOST_DECISIONS at most.
    """
    made = Forecast(frozenset((*state.index.queue, *state.index.deferred)), {}, now_ns)
    steps = forecasts(state, now_ns, options)
    while not is_over() and (further := next(steps, None)) is not None:
        made = further
    return made


def forecasts(state: State, now_ns: int, options: SchedulingOptions) -> Iterator[Forecast]:
    """Yield the forecast after each decision: what a later one says of a start is what an earlier
    one said, and the last one goes as far as MOST_DECISIONS allow."""
    ahead = _Ahead(state, now_ns, options)
    waiting = frozenset((*state.index.queue, *state.index.deferred))
    is_over = not ahead.is_waited_for
    while not is_over:
        is_stuck = not ahead.decide() and not ahead.advance()
        is_over = is_stuck or not ahead.is_waited_for or ahead.decisions >= MOST_DECISIONS
        until_ns = ahead.now_ns if ahead.is_waited_for and not is_stuck else None
        yield Forecast(waiting, dict(ahead.starts), until_ns)
    if not waiting:
        yield Forecast(waiting, {})


class _Ahead:
    """The copy, and how far its time has come."""

    def __init__(self, state: State, now_ns: int, options: SchedulingOptions) -> None:
        self.now_ns, self.decisions = now_ns, 0
        self.starts: dict[str, ForecastStart] = {}
        self._state = state
        self._options = replace(options, place=options.place.part(LEAST_SEARCH))
        self._waiting = {*state.index.queue, *state.index.deferred}
        self._ended: tuple[str, ...] = ()
        self._next_ns: int | None = None

    @property
    def is_waited_for(self) -> bool:
        """Whether the start of somebody is still unknown."""
        return bool(self._waiting)

    def decide(self) -> bool:
        """One decision. Whether anything came of it."""
        self.decisions += 1
        plan = decide(self._state, self.now_ns, self._options)
        self._next_ns = plan.next_decision_ns
        events = commit(self._state, plan, self.now_ns)
        if isinstance(events, Conflict) or not events:
            return False
        self._state = replay(events, self._state)
        for action in plan.actions:
            if isinstance(action, Start) and action.name in self._waiting:
                self._started(action.name)
        self._waiting &= {*self._state.index.queue, *self._state.index.deferred}
        return True

    def _started(self, name: str) -> None:
        job = self._state.jobs.get(name)
        if job is None or job.state is not JobState.RUNNING:
            return  # the commit has refused it
        end_ns = self.now_ns + time_limit_ns(job, self._options)
        self.starts[name] = ForecastStart(name, self.now_ns, end_ns, self._ended)
        self._waiting.discard(name)

    def advance(self) -> bool:
        """Move to the next moment at which something changes; return whether there is one."""
        state, now_ns = self._state, self.now_ns
        gangs, _ = releases(state, now_ns, self._options)
        returns = repairs(state, now_ns)
        moments = [at_ns for at_ns in self._edges() if at_ns > now_ns]
        moments += [gangs[0].end_ns] if gangs else []
        moments += [returns[0][0]] if returns else []
        if not moments:
            return False
        self.now_ns = min(moments)
        self._ended = tuple(gang.name for gang in gangs if gang.end_ns <= self.now_ns)
        for name in self._ended:
            if not self._happens(EndJob(name, JobState.COMPLETED)):
                self._happens(CancelJob(name))
        for at_ns, hosts in returns:
            if at_ns <= self.now_ns:
                name = state.loaded_fabric.hosts[hosts.bit_length() - 1]
                self._happens(ReportHost(name, "repaired"))
        return True

    def _edges(self) -> Iterator[int]:
        """When windows open and close, begin times come, and the decision wanted the next one."""
        for window in self._state.windows.values():
            yield from (window.window.start_ns, window.window.end_ns)
        for at_ns in (next_eligible_ns(self._state), self._next_ns):
            if at_ns is not None:
                yield at_ns

    def _happens(self, command: Command) -> bool:
        answer = admit(self._state, command, self.now_ns)
        if isinstance(answer, Rejected):
            return False
        self._state = replay(answer, self._state)
        return True
