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
from itertools import chain

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
    waiting = frozenset((*state.index.queue, *state.index.deferred))
    options = replace(options, place=options.place.part(LEAST_SEARCH))
    starts, unknown = dict[str, ForecastStart](), set(waiting)
    ended: tuple[str, ...] = ()  # gangs that end at this moment
    if not waiting:
        yield Forecast(waiting, starts)
    for _ in range(MOST_DECISIONS if waiting else 0):
        plan = decide(state, now_ns, options)
        events = commit(state, plan, now_ns)
        if isinstance(events, Conflict) or not events:
            following = _next_moment(state, now_ns, options, plan.next_decision_ns)
            if following is None:
                yield Forecast(waiting, dict(starts))
                return
            state, now_ns, ended = following
        else:
            state = replay(events, state)
            for action in plan.actions:
                if not isinstance(action, Start) or action.name not in unknown:
                    continue
                job = state.jobs.get(action.name)
                if job is not None and job.state is JobState.RUNNING:  # else commit has refused it
                    end_ns = now_ns + time_limit_ns(job, options)
                    starts[job.name] = ForecastStart(job.name, now_ns, end_ns, ended)
            unknown &= {*state.index.queue, *state.index.deferred}
        yield Forecast(waiting, dict(starts), now_ns if unknown else None)
        if not unknown:
            return


def _next_moment(
    state: State, now_ns: int, options: SchedulingOptions, decision_ns: int | None
) -> tuple[State, int, tuple[str, ...]] | None:
    """Return the state when something changes next, that time, and the gangs that end then; None:
    nothing does. `decision_ns`: when the decision wants the next one."""
    gangs, _ = releases(state, now_ns, options)
    returns = repairs(state, now_ns)
    edges = [(booking.window.start_ns, booking.window.end_ns) for booking in state.windows.values()]
    moments = [*chain.from_iterable(edges), next_eligible_ns(state), decision_ns]
    ahead = [at_ns for at_ns in moments if at_ns is not None and at_ns > now_ns]
    ahead += [gangs[0].end_ns] if gangs else []
    ahead += [returns[0][0]] if returns else []
    if not ahead:
        return None
    now_ns = min(ahead)
    ended = tuple(gang.name for gang in gangs if gang.end_ns <= now_ns)
    for name in ended:
        over = _after(state, EndJob(name, JobState.COMPLETED), now_ns)
        state = over or _after(state, CancelJob(name), now_ns) or state
    for at_ns, hosts in returns:
        if at_ns <= now_ns:
            name = state.loaded_fabric.hosts[hosts.bit_length() - 1]
            state = _after(state, ReportHost(name, "repaired"), now_ns) or state
    return state, now_ns, ended


def _after(state: State, command: Command, now_ns: int) -> State | None:
    """Return the state after a command; None where it is refused."""
    answer = admit(state, command, now_ns)
    return None if isinstance(answer, Rejected) else replay(answer, state)
