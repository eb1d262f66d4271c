"""The log, its leaders and callers as a search: crashes, pauses, leads that are lost, appends whose
answer is lost, calls that come twice.

muster's own: admit, decide, commit and apply, and the order of the writer's steps, which is
repeated here (check a batch, append, apply, answer). A model: the store, by the rules that
PostgresStore has its database keep, and the network. `Rules` switches one rule off at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from drills.protocol.log import LogNode, LogTree, is_answer
from drills.protocol.search import Broken
from scheduler.core import admit, commit
from scheduler.core.model.commands import CancelJob, Command, ReportHost, SubmitJob
from scheduler.core.model.events import Event, JobSubmitted
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.state import State
from scheduler.engine.proposal import Answer
from tests.build import exactly, spec


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that make the protocol safe; each is True in muster."""

    append_compares_term: bool = True
    append_compares_version: bool = True
    leader_reads_the_log_first: bool = True
    answer_after_append: bool = True
    refusals_ask_the_store: bool = True
    requests_have_ids: bool = True
    commit_checks_again: bool = True


AS_IT_IS = Rules()


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A caller's command, made once the requests in `after` have been answered."""

    command: Command
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """How far a search goes. Each fault happens so often at most: `crashes` of a server, `pauses`
    of a leader, `lost_leads` of one that goes on, `lost_answers` of the store, `repeats` of a
    call that is delivered once more, at any time."""

    name: str
    requests: tuple[SentRequest, ...]
    hosts: int = 3
    servers: int = 2
    crashes: int = 0
    pauses: int = 0
    lost_leads: int = 0
    lost_answers: int = 0
    repeats: int = 0


class Server(NamedTuple):
    """A simulated server. `at`: number of the log node of its state. `plans`: made, and not yet
    entered: (kind, node). `queue`: what waits for the writer."""

    is_up: bool = True
    is_paused: bool = False
    term: int | None = None
    at: int = 0
    plans: tuple[tuple[str, int], ...] = ()
    queue: tuple[tuple[str, int], ...] = ()


class Append(NamedTuple):
    """An append on its way to the store, or `done`, with its answer on the way back. `before`: the
    node after which it is to be written; `after`: the node that it makes. `batch`: what it
    answers."""

    server: int
    term: int
    before: int
    after: int
    batch: tuple[tuple[str, int], ...]
    answers: tuple[bool, ...]
    done: bool = False


class Faults(NamedTuple):
    crashes: int
    pauses: int
    lost_leads: int
    lost_answers: int
    repeats: int


class LeadersWorld(NamedTuple):
    """One state of the search. `calls`: of each request "", that it waits "waiting", was answered
    "done" or "refused". `holder`: who has the lead's lock."""

    log: int
    term: int
    last_term: int
    holder: int | None
    servers: tuple[Server, ...]
    appends: tuple[Append, ...]
    calls: tuple[str, ...]
    faults: Faults


class Leaders:
    """The model of leaders. `rules`: those that hold."""

    def __init__(self, scope: Scope, rules: Rules = AS_IT_IS) -> None:
        self._scope = scope
        self._rules = rules
        self._tree = LogTree(scope.hosts)
        self._settled: dict[LeadersWorld, str] = {}

    def start(self) -> LeadersWorld:
        scope = self._scope
        faults = Faults(
            scope.crashes, scope.pauses, scope.lost_leads, scope.lost_answers, scope.repeats
        )
        servers = (Server(term=1), *(Server() for _ in range(scope.servers - 1)))
        return LeadersWorld(0, 1, 0, 0, servers, (), ("",) * len(scope.requests), faults)

    def key(self, state: LeadersWorld) -> LeadersWorld:
        """Return a key that is equal for states that differ only by the numbers of servers."""
        if len(state.servers) != 2:
            return state
        mirrored = _swap_servers(state)
        return state if _order(state) <= _order(mirrored) else mirrored

    # --- steps ---------------------------------------------------------------------------------

    def steps(self, state: LeadersWorld) -> Iterator[tuple[str, LeadersWorld]]:
        yield from self._progress(state)
        yield from self._calls(state, is_repeat=True)
        yield from self._faults(state)

    def _progress(self, state: LeadersWorld) -> Iterator[tuple[str, LeadersWorld]]:
        """All that happens without a fault."""
        yield from self._append_steps(state)
        for number, server in enumerate(state.servers):
            if server.is_up and not server.is_paused:
                yield from self._server_steps(state, number, server)
        yield from self._calls(state, is_repeat=False)
        for number, server in enumerate(state.servers):
            if server.is_paused:
                yield (
                    f"server {number} goes on",
                    _with(state, number, server._replace(is_paused=False)),
                )
                if state.holder == number:
                    yield (
                        f"the lease of paused server {number} ends",
                        state._replace(holder=None),
                    )
            elif not server.is_up:  # a start reads the log, as every new lead does
                yield f"server {number} starts again", _with(state, number, Server())

    def _server_steps(
        self, state: LeadersWorld, number: int, server: Server
    ) -> Iterator[tuple[str, LeadersWorld]]:
        if server.term is None:
            if state.holder is None and not any(a.server == number for a in state.appends):
                yield f"server {number} takes the lead", self._lead(state, number, server)
            return
        is_writing = any(a.server == number for a in state.appends)
        if server.term != state.term:
            words = f"server {number} learns that another leads"
            yield words, self._give_up(state, number)
        if server.queue and not is_writing:
            yield f"server {number} writes what waits", self._write(state, number, server)
        for kind in ("cycle", "restarts"):
            if (plan := self._new_plan(server, kind)) is not None:
                made = server._replace(plans=tuple(sorted((*server.plans, plan))))
                yield f"server {number} decides on {kind}", _with(state, number, made)
        for plan in server.plans:
            if any(entry[0] in ("cycle", "restarts") and entry == plan for entry in server.queue):
                continue
            left = tuple(each for each in server.plans if each != plan)
            entered = server._replace(plans=left, queue=(*server.queue, plan))
            yield f"server {number} enters its plan of {plan[0]}", _with(state, number, entered)

    def _new_plan(self, server: Server, kind: str) -> tuple[str, int] | None:
        """Return the plan that a server would begin now; None: no actions, or already begun."""
        if any(kind == known for known, _ in (*server.plans, *server.queue)):
            return None
        node = self._tree.nodes[server.at]
        if kind == "restarts" and not node.state.index.interrupted:
            return None
        return (kind, server.at) if self._tree.plan(node, kind).actions else None

    def _lead(self, state: LeadersWorld, number: int, server: Server) -> LeadersWorld:
        mine = self._tree.nodes[server.at]
        if not mine.begins(self._tree.nodes[state.log]):
            raise Broken(f"the state of server {number} is not what the log says")
        at = state.log if self._rules.leader_reads_the_log_first else server.at
        leading = server._replace(term=state.term + 1, at=at)
        after = _with(state, number, leading)
        return after._replace(term=state.term + 1, holder=number)

    def _calls(self, state: LeadersWorld, *, is_repeat: bool) -> Iterator[tuple[str, LeadersWorld]]:
        for r, request in enumerate(self._scope.requests):
            status = state.calls[r]
            if any(state.calls[other] not in ("done", "refused") for other in request.after):
                continue
            if is_repeat and (not state.faults.repeats or status == ""):
                continue
            if not is_repeat and status != "":
                continue
            for number, server in enumerate(state.servers):
                if server.term is None or not server.is_up:
                    continue
                if ("call", r) in server.queue:
                    continue
                asked = _with(state, number, server._replace(queue=(*server.queue, ("call", r))))
                if is_repeat:
                    left = state.faults._replace(repeats=state.faults.repeats - 1)
                    yield f"request {r} comes to server {number} again", asked._replace(faults=left)
                else:
                    calls = _set(state.calls, r, "waiting")
                    yield f"request {r} comes to server {number}", asked._replace(calls=calls)

    def _write(self, state: LeadersWorld, number: int, server: Server) -> LeadersWorld:
        """Check the batch, each on what those before it leave; nothing to write is answered."""
        node, answers, events = self._tree.nodes[server.at], list[bool](), list[Event]()
        after = node
        for kind, what in server.queue:
            found = self._checked(after.state, kind, what, node.now_ns)
            answers.append(found is not None)
            after = self._tree.after(after, *(found or ()))
            events += found or ()
        append = Append(
            number, server.term or 0, node.number, after.number, server.queue, tuple(answers)
        )
        state = _with(state, number, server._replace(queue=()))
        has_calls = any(kind == "call" for kind, _ in server.queue)
        if not events and not (has_calls and self._rules.refusals_ask_the_store):
            return self._answered(state, append)
        if not self._rules.answer_after_append:
            state = self._answered(state, append)
        return state._replace(appends=tuple(sorted((*state.appends, append))))

    def _checked(self, at: State, kind: str, what: int, now_ns: int) -> Sequence[Event] | None:
        """The events; None for a refusal."""
        if kind == "call":
            command: Any = self._scope.requests[what].command
            if not self._rules.requests_have_ids:
                command = replace(command, request_id="")
            answer: Answer = admit(at, command, now_ns)
        else:
            made_on = self._tree.nodes[what]
            plan = self._tree.plan(made_on, kind)
            on = at if self._rules.commit_checks_again else made_on.state
            answer = commit(on, plan, now_ns)
        return answer if is_answer(answer) else None  # type: ignore[return-value]

    def _answered(self, state: LeadersWorld, append: Append) -> LeadersWorld:
        calls = state.calls
        for (kind, what), is_good in zip(append.batch, append.answers, strict=True):
            if kind == "call" and calls[what] != "done":
                calls = _set(calls, what, "done" if is_good else "refused")
        return state._replace(calls=calls)

    def _append_steps(self, state: LeadersWorld) -> Iterator[tuple[str, LeadersWorld]]:
        for append in state.appends:
            rest = state._replace(appends=tuple(a for a in state.appends if a is not append))
            server = state.servers[append.server]
            if append.done:
                if server.is_paused:
                    continue
                yield (
                    f"server {append.server} hears that its append is written",
                    self._acknowledge(rest, append),
                )
            else:
                yield from self._store(state, rest, append)

    def _store(
        self, state: LeadersWorld, rest: LeadersWorld, append: Append
    ) -> Iterator[tuple[str, LeadersWorld]]:
        """The store takes an append, or refuses it."""
        server = state.servers[append.server]
        is_deposed = self._rules.append_compares_term and append.term != state.term
        is_behind = self._rules.append_compares_version and append.before != state.log
        if is_deposed or is_behind:
            words = f"the store refuses the append of server {append.server}"
            after = self._give_up(rest, append.server) if server.term == append.term else rest
            yield words, after
            return
        if append.before != state.log:
            raise Broken("an append overwrites what the log has")
        if append.term < state.last_term:
            raise Broken("an event of an older term stands after one of a newer")
        is_empty = append.before == append.after
        last_term = rest.last_term if is_empty else append.term
        written = rest._replace(log=append.after, last_term=last_term)
        done = (*rest.appends, append._replace(done=True))
        does = "confirms the lead" if is_empty else "writes the append"
        words = f"the store {does} of server {append.server}"
        if not server.is_up or server.term != append.term:
            yield words, written  # nobody waits for the answer
        else:
            yield words, written._replace(appends=tuple(sorted(done)))
            if state.faults.lost_answers:
                left = state.faults._replace(lost_answers=state.faults.lost_answers - 1)
                lost = self._give_up(written, append.server)._replace(faults=left)
                yield f"{words}, and its answer is lost", lost

    def _acknowledge(self, rest: LeadersWorld, append: Append) -> LeadersWorld:
        """Move the writer on and answer its calls, if it still leads in the term of the append."""
        server = rest.servers[append.server]
        if not server.is_up or server.term != append.term:
            return rest
        moved = server._replace(at=append.after)
        return self._answered(_with(rest, append.server, moved), append)

    def _give_up(self, state: LeadersWorld, number: int) -> LeadersWorld:
        """It leads no more: who waits is told that nothing is known."""
        server = state.servers[number]
        waiting = {what for kind, what in server.queue if kind == "call"}
        for append in state.appends:
            if append.server == number:
                waiting |= {what for kind, what in append.batch if kind == "call"}
        calls = tuple(
            "" if status == "waiting" and self._is_asked_of(state, r, number, waiting) else status
            for r, status in enumerate(state.calls)
        )
        holder = None if state.holder == number else state.holder
        appends = tuple(a for a in state.appends if not (a.server == number and a.done))
        after = _with(state, number, Server(server.is_up, at=server.at))
        return after._replace(calls=calls, holder=holder, appends=appends)

    def _is_asked_of(self, state: LeadersWorld, r: int, number: int, waiting: set[int]) -> bool:
        """A call whose answer nobody else can give ends without one; it is made again."""
        others = (
            what
            for n, server in enumerate(state.servers)
            if n != number
            for kind, what in server.queue
            if kind == "call"
        )
        return r in waiting or r not in others

    def _faults(self, state: LeadersWorld) -> Iterator[tuple[str, LeadersWorld]]:
        left = state.faults
        for number, server in enumerate(state.servers):
            if not server.is_up:
                continue
            if left.crashes:
                fewer = left._replace(crashes=left.crashes - 1)
                after = self._give_up(state, number)
                after = _with(after, number, Server(is_up=False))
                yield f"server {number} crashes", after._replace(faults=fewer)
            if left.pauses and server.term is not None and not server.is_paused:
                fewer = left._replace(pauses=left.pauses - 1)
                paused = _with(state, number, server._replace(is_paused=True))
                yield f"server {number} stands still", paused._replace(faults=fewer)
            if left.lost_leads and state.holder == number:
                fewer = left._replace(lost_leads=left.lost_leads - 1)
                lost = state._replace(holder=None, faults=fewer)
                yield f"server {number} loses the lead and does not know it", lost

    # --- what must hold ------------------------------------------------------------------------

    def broken(self, state: LeadersWorld) -> str:
        log = self._tree.nodes[state.log]
        for number, server in enumerate(state.servers):
            if not self._tree.nodes[server.at].begins(log):
                return f"the state of server {number} is not what the log says"
        leader = next((s for s in state.servers if s.term == state.term and s.is_up), None)
        for r, status in enumerate(state.calls):
            request = self._scope.requests[r].command
            times = self._times(log, request)
            if times > 1:
                return f"request {r} took effect {times} times"
            if status == "done" and not _is_done(log.state, request):
                return f"request {r} was acknowledged, and the log does not have it"
            if status == "refused":
                return f"request {r} was refused though it had to be accepted"
            if leader is not None and status == "done":
                at = self._tree.nodes[leader.at]
                if not _is_done(at.state, request):
                    return f"request {r} was acknowledged, and the leader does not know of it"
        return ""

    def _times(self, log: LogNode, command: Command) -> int:
        """How often a submit made a job."""
        if not isinstance(command, SubmitJob):
            return 0
        name, times = command.spec.name, 0
        node: LogNode | None = log
        while node is not None:
            times += isinstance(node.event, JobSubmitted) and node.event.spec.name == name
            node = node.parent
        return times

    def unsettled(self, state: LeadersWorld) -> str:
        """Run on without faults, always by the first possible step; return what never recovers: all
        requests should be answered, and every gang have its hosts, wait for want of hosts, or be
        over."""
        way: list[LeadersWorld] = []
        while state not in self._settled:
            way.append(state)
            following = next(self._progress(state), None)
            if following is None:
                self._settled[state] = self._at_rest(state)
                break
            if len(way) > 500:
                self._settled[state] = "it goes on for ever"
                break
            state = following[1]
        fault = self._settled[state]
        self._settled.update(dict.fromkeys(way, fault))
        return fault

    def _at_rest(self, state: LeadersWorld) -> str:
        if any(status != "done" for status in state.calls):
            return f"a request is never answered: {state.calls}"
        at = self._tree.nodes[state.log].state
        if at.index.interrupted:
            return f"{at.index.interrupted[0]} stands still for ever"
        free = at.free.bit_count()
        for name in at.index.queue:
            if _hosts(at, at.jobs[name]) <= free:
                return f"{name} waits for ever beside {free} free hosts"
        return ""


def _hosts(state: State, job: Job) -> int:
    blocks = -(-job.request.parallelism.world_size // state.built_fabric.gpus_per_host)
    return blocks + (job.request.spares.hosts or 0)


def _is_done(state: State, command: Command) -> bool:
    """Whether the log has what was asked, whatever came after."""
    match command:
        case SubmitJob():
            return state.find(command.spec.name) is not None
        case CancelJob():
            job = state.find(command.name)
            return job is not None and job.state is JobState.CANCELLED
        case ReportHost():
            index = state.built_fabric.index_by_name[command.host]
            return index in state.records or index in state.hosts
    raise AssertionError(command)


def _with(state: LeadersWorld, number: int, server: Server) -> LeadersWorld:
    servers = (*state.servers[:number], server, *state.servers[number + 1 :])
    return state._replace(servers=servers)


def _set(calls: tuple[str, ...], r: int, status: str) -> tuple[str, ...]:
    return (*calls[:r], status, *calls[r + 1 :])


def _order(state: LeadersWorld) -> tuple[int, int, int]:
    """By which two mirrored states are told apart, if they differ."""
    first = state.appends[0].server if state.appends else 0
    return hash(state.servers[0]), state.holder or 0, first


def _swap_servers(state: LeadersWorld) -> LeadersWorld:
    """Return the state with the two servers exchanged."""
    appends = tuple(sorted(a._replace(server=1 - a.server) for a in state.appends))
    holder = None if state.holder is None else 1 - state.holder
    return state._replace(servers=state.servers[::-1], appends=appends, holder=holder)


def submit(name: str, hosts: int, *, spares: int = 0, after: tuple[int, ...] = ()) -> SentRequest:
    made = spec(name, hosts, gpus=1, spares=exactly(spares))
    return SentRequest(SubmitJob(made, f"uid-{name}", f"submit-{name}"), after)


def cancel(name: str, after: tuple[int, ...]) -> SentRequest:
    return SentRequest(CancelJob(name, request_id=f"cancel-{name}"), after)


def fail(host: str, after: tuple[int, ...] = ()) -> SentRequest:
    return SentRequest(ReportHost(host, "gpu-lost", request_id=f"fail-{host}"), after)
