"""What is different in a twin, read from words: `spares 2 a zone`, `drain z5 on 2026-12-01 for 8h`.

docs/twin.md lists the changes. Several make one scenario. Each is checked against the cluster
before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from muster.structs import replace, struct
from placement import BadInput
from scheduler.core import Rejected, SchedulingOptions, State, admit, replay
from scheduler.core.model.commands import ChangeFabric, Command, LoadHealth, LoadTenants, SetWindow
from scheduler.core.model.window import Leave, Window, WindowKind
from scheduler.core.policies.health import PreventionAction
from scheduler.core.policies.tenants import Defragmentation
from scheduler.core.queue.policies import queue_policy
from scheduler.files.errors import InputError, Problem
from scheduler.files.tenants import load_tenants
from scheduler.files.timeparse import parse_duration, parse_moment
from simulator.experiment import oversubscribed
from simulator.report.text import duration
from simulator.traces.record import SECOND_NS
from simulator.twin.fork import ClusterFork, unwatched, with_auto_spares

OPTION = "--change"
MOST_CHECKPOINT_S = 30 * 86_400
WEEK_NS = 7 * 86_400 * SECOND_NS
FORMS = (
    "spares 2 a zone",
    "policy conservative",
    "oversubscription 4",
    "checkpoint 30m",
    "defrag every 6h for 16 hosts",
    "quotas tenants.yaml",
    "prevention swap",
    "drain z5 on 2026-12-01 for 8h",
)


@struct(frozen=True, slots=True)
class Change:
    """A change of the cluster that a twin asks about. `commands` are for the scheduler; `policy`:
    of the queue; `checkpoint_s`: in place of the time model's; `has_auto_spares`: of all jobs,
    whatever they state."""

    commands: tuple[Command, ...] = ()
    policy: str | None = None
    checkpoint_s: int = 0
    has_auto_spares: bool = False


@struct(frozen=True, slots=True)
class Scenario:
    """The state and options with which a run of a twin begins. `has_auto_spares`: of jobs that
    arrive, whatever they state. `checkpoint_s`: in place of the time model's."""

    changes: tuple[str, ...]
    state: State
    options: SchedulingOptions
    has_auto_spares: bool = False
    checkpoint_s: int = 0

    @property
    def name(self) -> str:
        return ", ".join(self.changes) or "as it is"

    def with_change(self, change: Change, text: str) -> Scenario:
        """Return the scenario changed. Raises: BadInput with what the scheduler refuses."""
        state = with_auto_spares(self.state) if change.has_auto_spares else self.state
        for command in change.commands:
            state = _done(state, command)
        options = self.options
        return replace(
            self,
            changes=(*self.changes, text),
            state=state,
            options=replace(options, policy=change.policy or options.policy),
            has_auto_spares=self.has_auto_spares or change.has_auto_spares,
            checkpoint_s=change.checkpoint_s or self.checkpoint_s,
        )


def scenario(
    fork: ClusterFork, changes: Sequence[str], horizon_ns: int, *, has_times: bool
) -> Scenario:
    """Return the cluster with all these changes. `has_times`: whether runs have a time model.

    Raises: InputError naming the change that cannot be.
    """
    asked = TwinClock(fork.now_ns, horizon_ns, has_times)
    built, seen = Scenario((), unwatched(fork.state), fork.options), set[str]()
    for text in changes:
        what = " ".join(text.split())
        kind = what.split(maxsplit=1)[0] if what else ""
        if kind in seen and kind != "drain":
            raise _wrong(text, f"{kind} is given twice")
        seen.add(kind)
        reader, words = _reader(what)
        try:
            built = built.with_change(reader(asked, built.state, built.options, words), text)
        except BadInput as error:
            raise _wrong(text, error.message) from None
    return built


@struct(frozen=True, slots=True)
class TwinClock:
    """The context in which the words of changes are parsed. `has_times`: whether runs have a time
    model."""

    now_ns: int
    horizon_ns: int
    has_times: bool


_Read = Callable[[TwinClock, State, SchedulingOptions, re.Match[str]], Change]


def _spares(_: TwinClock, state: State, __: SchedulingOptions, words: re.Match[str]) -> Change:
    count, fabric, tenants = int(words["count"]), state.built_fabric, state.tenants
    zones = [fabric.zone_of(host) for host in range(fabric.host_count)]
    least = min(zones.count(zone) for zone in set(zones))
    if count >= least:
        raise BadInput(
            "", f"the smallest zone has {least:,} hosts: nothing would be left to run on"
        )
    spares = replace(tenants.spares, per_zone=count, in_zone=True, racks=0)
    return Change((LoadTenants(replace(tenants, spares=spares)),), has_auto_spares=True)


def _policy(_: TwinClock, __: State, options: SchedulingOptions, words: re.Match[str]) -> Change:
    name = queue_policy(words["name"]).name
    if name == options.policy:
        raise BadInput("", f"the policy is {name} already")
    return Change(policy=name)


def _oversubscription(
    asked: TwinClock, state: State, _: SchedulingOptions, words: re.Match[str]
) -> Change:
    ratio, fabric = float(words["ratio"]), state.built_fabric
    if not 0.01 <= ratio <= 1000:
        raise BadInput("", "must be from 0.01 to 1000")
    if not asked.has_times:
        raise BadInput("", "needs --times: without a time model any network is as fast as another")
    if fabric.zone_count < 2:
        raise BadInput("", f"{fabric.name} has one {fabric.tiers[0].name}: nothing leaves it")
    changed = oversubscribed(fabric, ratio)
    return Change((ChangeFabric(changed.spec),))


def _checkpoint(
    asked: TwinClock, state: State, _: SchedulingOptions, words: re.Match[str]
) -> Change:
    seconds = parse_duration(words["length"]) // SECOND_NS
    if not 1 <= seconds <= MOST_CHECKPOINT_S:
        raise BadInput("", f"must be from 1s to {MOST_CHECKPOINT_S // 86_400}d")
    if not asked.has_times:
        raise BadInput("", "needs --times: without a time model writing a checkpoint costs nothing")
    tenants = state.tenants
    costs = replace(tenants.preemption.costs, checkpoint_s=seconds)
    tenants = replace(tenants, preemption=replace(tenants.preemption, costs=costs))
    return Change((LoadTenants(tenants),), checkpoint_s=seconds)


def _defrag(_: TwinClock, state: State, __: SchedulingOptions, words: re.Match[str]) -> Change:
    policy = None
    if words["length"] is not None:
        seconds, hosts = parse_duration(words["length"]) // SECOND_NS, int(words["hosts"])
        if seconds < 60:
            raise BadInput("", "must be at least every 1m")
        policy = Defragmentation(every_s=seconds, hosts=hosts)
    return Change((LoadTenants(replace(state.tenants, defragmentation=policy)),))


def _quotas(_: TwinClock, state: State, __: SchedulingOptions, words: re.Match[str]) -> Change:
    file = load_tenants(words["file"])
    file.check(state.built_fabric)
    return Change((LoadTenants(file.tenants),))


def _prevention(_: TwinClock, state: State, __: SchedulingOptions, words: re.Match[str]) -> Change:
    action, policy = PreventionAction(words["action"]), state.health.prevention
    if action is policy.action:
        raise BadInput("", f"prevention is {action} already")
    changed = replace(state.health, prevention=replace(policy, action=action))
    return Change((LoadHealth(changed),))


def _drain(asked: TwinClock, state: State, _: SchedulingOptions, words: re.Match[str]) -> Change:
    length_ns = parse_duration(words["length"])
    start_ns = _moment(words, asked)
    number, taken = 1, state.windows
    while f"twin-drain-{number}" in taken:
        number += 1
    window = Window(
        f"twin-drain-{number}",
        WindowKind.MAINTENANCE,
        start_ns,
        start_ns + length_ns,
        tuple(words["hosts"].replace(",", " ").split()),
        leave=Leave.REQUEUE,
        reason="drained in the twin",
    )
    return Change((SetWindow(window),))


_WHEN = r"(?:from week (?P<week>\d{1,4})|(?:from|on|at) (?P<when>\S+))"
_DRAIN = re.compile(rf"drain (?P<hosts>.+?) {_WHEN} for (?P<length>\S+)")
_READERS: tuple[tuple[re.Pattern[str], _Read], ...] = (
    (re.compile(r"spares (?P<count>\d{1,6}) (?:a|per) zone"), _spares),
    (re.compile(r"policy (?P<name>\S+)"), _policy),
    (re.compile(r"oversubscription (?P<ratio>\d+(?:\.\d+)?)(?::1)?"), _oversubscription),
    (re.compile(r"checkpoint (?:every )?(?P<length>\S+)"), _checkpoint),
    (
        re.compile(r"defrag (?:never|every (?P<length>\S+) for (?P<hosts>[1-9]\d{0,5}) hosts?)"),
        _defrag,
    ),
    (re.compile(r"quotas (?P<file>\S+)"), _quotas),
    (re.compile(r"prevention (?P<action>off|show|swap)"), _prevention),
    (_DRAIN, _drain),
)


def _moment(words: re.Match[str], asked: TwinClock) -> int:
    """`week 6` begins five weeks from now. Raises: BadInput on what is not in a run."""
    now_ns = asked.now_ns
    if words["week"]:
        said, week = f"week {words['week']}", int(words["week"])
        if not week:
            raise BadInput("", "weeks count from 1, which begins now")
        time_ns = now_ns + (week - 1) * WEEK_NS
    else:
        said, time_ns = words["when"], parse_moment(words["when"], now_ns)
    if time_ns < now_ns:
        raise BadInput("", f"{said} has passed")
    if time_ns >= now_ns + asked.horizon_ns:
        ahead = duration(asked.horizon_ns / SECOND_NS)
        raise BadInput("", f"{said} is behind the horizon of {ahead}: a longer --horizon sees it")
    return time_ns


def _reader(what: str) -> tuple[_Read, re.Match[str]]:
    for pattern, reader in _READERS:
        if words := pattern.fullmatch(what):
            return reader, words
    forms = "; ".join(FORMS)
    raise InputError(Problem(OPTION, f"must be like one of these, not {what!r}: {forms}"))


def _done(state: State, command: Command) -> State:
    """The state after a command that is given now. Raises: BadInput with the refusal."""
    answer = admit(state, command, state.seen_ns)
    if isinstance(answer, Rejected):
        raise BadInput("", answer.message)
    return replay(answer, state)


def _wrong(text: str, message: str) -> InputError:
    return InputError(Problem(OPTION, f"{text!r}: {message}"))
