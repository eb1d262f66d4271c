"""What is different in a twin, read from words.

    spares 2 a zone                       every gang leaves its spares to its zone, which holds two
    policy conservative                   another queue policy
    oversubscription 4                    other uplinks of the outermost tier; needs a time model
    checkpoint 30m                        time between two checkpoints; needs a time model
    defrag every 6h for 16 hosts          defragmentation by policy, or `defrag never`
    drain z5 on 2026-12-01 for 8h         a maintenance window, known from now on

Several make one scenario. Each is checked against the cluster before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from placement import BadInput
from scheduler.core import Rejected, SchedulingOptions, State, admit, replay
from scheduler.core.model.commands import ChangeFabric, Command, LoadTenants, SetWindow
from scheduler.core.model.window import Leave, Window, WindowKind
from scheduler.core.policies.tenants import Defragmentation
from scheduler.core.queue.policies import queue_policy
from scheduler.files.errors import InputError, Problem
from scheduler.files.timeparse import parse_duration, parse_moment
from simulator.experiment import oversubscribed
from simulator.report.text import duration
from simulator.traces.record import SECOND_NS
from simulator.twin.fork import ClusterFork, unwatched, with_auto_spares

OPTION = "--change"
MOST_CHECKPOINT_S = 30 * 86_400
FORMS = (
    "spares 2 a zone",
    "policy conservative",
    "oversubscription 4",
    "checkpoint 30m",
    "defrag every 6h for 16 hosts",
    "drain z5 on 2026-12-01 for 8h",
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Where a run begins. `has_auto_spares`: of jobs that arrive, whatever they state.
    `checkpoint_s`: in place of the time model's."""

    changes: tuple[str, ...]
    state: State
    limits: SchedulingOptions
    has_auto_spares: bool = False
    checkpoint_s: int = 0

    @property
    def name(self) -> str:
        return ", ".join(self.changes) or "as it is"


def scenario(
    fork: ClusterFork, changes: Sequence[str], horizon_ns: int, *, has_times: bool
) -> Scenario:
    """The cluster with all these changes. `has_times`: whether runs have a time model.

    Raises: InputError naming the change that cannot be.
    """
    built = Scenario(tuple(changes), unwatched(fork.state), fork.limits)
    seen: list[str] = []
    for text in changes:
        reader, words = _reader(text)
        kind = text.split()[0]
        if kind in seen and kind != "drain":
            raise _wrong(text, f"{kind} is given twice")
        seen.append(kind)
        try:
            built = reader(_Asked(fork, horizon_ns, has_times, len(seen)), built, words)
        except BadInput as error:
            raise _wrong(text, error.message) from None
    return built


@dataclass(frozen=True, slots=True)
class _Asked:
    """What readers know beside the words. `number`: of the change, from 1."""

    fork: ClusterFork
    horizon_ns: int
    has_times: bool
    number: int


_Read = Callable[[_Asked, Scenario, re.Match[str]], Scenario]


def _spares(_: _Asked, built: Scenario, words: re.Match[str]) -> Scenario:
    state, count = built.state, int(words["count"])
    fabric, tenants = state.built_fabric, state.tenants
    zones = [fabric.zone_of(host) for host in range(fabric.host_count)]
    least = min(zones.count(zone) for zone in set(zones))
    if count >= least:
        raise BadInput(
            "", f"the smallest zone has {least:,} hosts: nothing would be left to run on"
        )
    spares = replace(tenants.spares, per_zone=count, in_zone=True, racks=0)
    state = _done(with_auto_spares(state), built, LoadTenants(replace(tenants, spares=spares)))
    return replace(built, state=state, has_auto_spares=True)


def _policy(_: _Asked, built: Scenario, words: re.Match[str]) -> Scenario:
    name = queue_policy(words["name"]).name
    if name == built.limits.policy:
        raise BadInput("", f"{name} is the policy already")
    return replace(built, limits=replace(built.limits, policy=name))


def _oversubscription(asked: _Asked, built: Scenario, words: re.Match[str]) -> Scenario:
    ratio, fabric = float(words["ratio"]), built.state.built_fabric
    if not 0.01 <= ratio <= 1000:
        raise BadInput("", "must be from 0.01 to 1000")
    if not asked.has_times:
        raise BadInput("", "needs --times: without a time model any network is as fast as another")
    other = oversubscribed(fabric, ratio)
    if len(fabric.tiers[0].domains) < 2:
        raise BadInput("", f"{fabric.name} has one {fabric.tiers[0].name}: nothing leaves it")
    state = _done(built.state, built, ChangeFabric(other.spec))
    return replace(built, state=state)


def _checkpoint(asked: _Asked, built: Scenario, words: re.Match[str]) -> Scenario:
    seconds = parse_duration(words["length"]) // SECOND_NS
    if not 1 <= seconds <= MOST_CHECKPOINT_S:
        raise BadInput("", f"must be from 1s to {MOST_CHECKPOINT_S // 86_400}d")
    if not asked.has_times:
        raise BadInput("", "needs --times: without a time model writing a checkpoint costs nothing")
    tenants = built.state.tenants
    costs = replace(tenants.preemption.costs, checkpoint_s=seconds)
    tenants = replace(tenants, preemption=replace(tenants.preemption, costs=costs))
    state = _done(built.state, built, LoadTenants(tenants))
    return replace(built, state=state, checkpoint_s=seconds)


def _defrag(_: _Asked, built: Scenario, words: re.Match[str]) -> Scenario:
    tenants, policy = built.state.tenants, None
    if words["length"] is not None:
        seconds, hosts = parse_duration(words["length"]) // SECOND_NS, int(words["hosts"])
        if seconds < 60:
            raise BadInput("", "must be at least every 1m")
        policy = Defragmentation(every_s=seconds, hosts=hosts)
    state = _done(built.state, built, LoadTenants(replace(tenants, defragmentation=policy)))
    return replace(built, state=state)


def _drain(asked: _Asked, built: Scenario, words: re.Match[str]) -> Scenario:
    now_ns = asked.fork.now_ns
    start_ns, length_ns = parse_moment(words["when"], now_ns), parse_duration(words["length"])
    if start_ns < now_ns:
        raise BadInput("", f"{words['when']} has passed")
    if start_ns >= now_ns + asked.horizon_ns:
        ahead = duration(asked.horizon_ns / SECOND_NS)
        raise BadInput("", f"{words['when']} is behind the horizon of {ahead}")
    name, taken = f"twin-drain-{asked.number}", built.state.windows
    while name in taken:
        name += "x"
    hosts = tuple(words["hosts"].replace(",", " ").split())
    window = Window(
        name,
        WindowKind.MAINTENANCE,
        start_ns,
        start_ns + length_ns,
        hosts,
        leave=Leave.REQUEUE,
        reason="drained in the twin",
    )
    return replace(built, state=_done(built.state, built, SetWindow(window)))


def _zone(_: _Asked, built: Scenario, words: re.Match[str]) -> Scenario:
    raise BadInput(
        "",
        "hardware of a zone is no change that a twin can tell: run times are those of the log, and"
        " the time model makes them longer on narrow links, never shorter; muster estimate has the"
        " step of a job on another fabric",
    )


_READERS: tuple[tuple[re.Pattern[str], _Read], ...] = (
    (re.compile(r"spares (?P<count>\d{1,6}) (?:a|per) zone"), _spares),
    (re.compile(r"policy (?P<name>\S+)"), _policy),
    (re.compile(r"oversubscription (?P<ratio>\d+(?:\.\d+)?)(?::1)?"), _oversubscription),
    (re.compile(r"checkpoint (?:every )?(?P<length>\S+)"), _checkpoint),
    (
        re.compile(r"defrag (?:never|every (?P<length>\S+) for (?P<hosts>[1-9]\d{0,5}) hosts?)"),
        _defrag,
    ),
    (re.compile(r"zone .+"), _zone),
    (re.compile(r"drain (?P<hosts>.+?) (?:on|at) (?P<when>\S+) for (?P<length>\S+)"), _drain),
)


def _reader(text: str) -> tuple[_Read, re.Match[str]]:
    for pattern, reader in _READERS:
        if words := pattern.fullmatch(" ".join(text.split())):
            return reader, words
    forms = "; ".join(FORMS)
    raise InputError(Problem(OPTION, f"must be like one of these, not {text!r}: {forms}"))


def _done(state: State, built: Scenario, command: Command) -> State:
    """The state after a command that is given now. Raises: BadInput with the refusal."""
    now_ns = max(state.seen_ns, built.state.seen_ns)
    answer = admit(state, command, now_ns)
    if isinstance(answer, Rejected):
        raise BadInput("", answer.message)
    return replay(answer, state)


def _wrong(text: str, message: str) -> InputError:
    return InputError(Problem(OPTION, f"{text!r}: {message}"))
