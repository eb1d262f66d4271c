"""Another fabric for a cluster that runs: what it adds, removes and renames, and what forbids it.

A gang stays where it is, so its hosts and spares must keep their names, their domains and their
GPUs; what goes must be drained first. What waits must still be able to start, and what is promised
(guarantees, reservations) must still be there. Everything in the way is listed, host by host.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from muster.structs import replace, struct
from placement import BadInput
from placement.fabric import constraints, hostset
from placement.fabric.constraints import gpus_wanted, labelled
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from scheduler.core.admission.etag import stale
from scheduler.core.model.commands import ChangeFabric
from scheduler.core.model.events import Event, FabricChanged, SparesChanged
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.rejected import Code, Rejected
from scheduler.core.model.state import State
from scheduler.core.model.window import WindowKind
from scheduler.core.policies import affinity
from scheduler.core.tenancy import guarantees
from scheduler.core.tenancy.entitlement import beyond_quota, impossible

_SHOWN: Final = 3  # obstacles in one sentence


class FabricObstacle(StrEnum):
    """Kind of obstacle to another fabric, for a program that switches on it."""

    GANG = "gang"  # a gang runs on the host: drain it first
    SPARE = "spare"  # a job holds the host as a spare: drain it first
    RESERVED = "reserved"  # a reservation window holds the host
    JOB = "job"  # a live job could never start there again
    PROMISE = "promise"  # guarantees of the tenants file do not fit


@struct(frozen=True, slots=True)
class Refusal:
    """Obstacle to another fabric, in words. `subject`: a host, a job or "tenants". `job`: who holds
    the host."""

    obstacle: FabricObstacle
    subject: str
    detail: str
    job: str = ""


@struct(frozen=True, slots=True)
class FabricChange:
    """Differences between two fabrics. Hosts and domains by name, in the order of their fabric.

    `renames`: (old, new), of hosts and domains. `moved`: hosts in other domains than before;
    `changed`: hosts with other GPUs, speeds or labels. `links`: domains whose uplink carries
    another number of bytes; `settings`: of the fabric as a whole, in words.
    """

    before: Fabric
    after: Fabric
    renames: tuple[tuple[str, str], ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    moved: tuple[str, ...]
    changed: tuple[str, ...]
    added_domains: tuple[str, ...]
    removed_domains: tuple[str, ...]
    links: tuple[str, ...]
    settings: tuple[str, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.before == self.after

    @property
    def summary(self) -> str:
        """Return the differences in words: `2 hosts added (a, b), nic_gbps 400 -> 800`."""
        lists = (
            ("hosts added", self.added),
            ("hosts removed", self.removed),
            ("hosts moved", self.moved),
            ("hosts changed", self.changed),
            ("domains added", self.added_domains),
            ("domains removed", self.removed_domains),
            ("uplinks changed", self.links),
            ("renamed", tuple(f"{old} -> {new}" for old, new in self.renames)),
        )
        parts = [f"{len(names):,} {label} ({_some(names)})" for label, names in lists if names]
        return (
            ", ".join([*parts, *self.settings]) or "the same hosts and domains, written otherwise"
        )


def change_fabric(state: State, command: ChangeFabric, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Return the event of a change to another fabric, or refuse it with the first obstacles.

    Raises: BadInput naming the field."""
    if refusal := stale_fabric(state, command):
        return refusal
    change = fabric_change(state, command)
    if change.is_empty:
        return ()
    if change.refusals:
        shown = [each.detail for each in change.refusals[:_SHOWN]]
        more = len(change.refusals) - len(shown)
        shown += [f"and {more:,} more: a dry run lists all"] if more else []
        return Rejected(Code.PRECONDITION, f"the fabric stays as it is: {'; '.join(shown)}")
    changed = FabricChanged(now_ns, command.spec, change.renames, command.request_id)
    return (*_released(state, change, now_ns), changed)


def stale_fabric(state: State, command: ChangeFabric) -> Rejected | None:
    """Refuse a command that was meant for another fabric than the present one."""
    return stale(command.etag, lambda: state.built_fabric.digest, "the fabric")


def fabric_change(state: State, command: ChangeFabric) -> FabricChange:
    """Compare a new fabric with that of now; list obstacles. Raises: BadInput naming the field."""
    before, after = state.built_fabric, _built(command)
    renames = _renames(before, after, command.renames)
    new_name = dict(renames)
    old_name = {new: old for old, new in renames}
    places = {new_name.get(host, host): _place(before, i, new_name) for i, host in _hosts(before)}
    kept = [(i, host) for i, host in _hosts(after) if host in places]
    index, was, now = before.index_by_name, _domains(before), _domains(after)
    hardware = [_hardware(fabric) for fabric in (before, after)]
    change = FabricChange(
        before,
        after,
        renames,
        added=tuple(host for _, host in _hosts(after) if host not in places),
        removed=tuple(
            host for host in before.hosts if new_name.get(host, host) not in after.index_by_name
        ),
        moved=tuple(host for i, host in kept if places[host] != _place(after, i, {})),
        changed=tuple(
            host
            for i, host in kept
            if hardware[0][index[old_name.get(host, host)]] != hardware[1][i]
        ),
        added_domains=tuple(name for name in now if old_name.get(name, name) not in was),
        removed_domains=tuple(name for name in was if new_name.get(name, name) not in now),
        links=tuple(
            name
            for name, bytes_per_s in now.items()
            if was.get(old_name.get(name, name), bytes_per_s) != bytes_per_s
        ),
        settings=tuple(_settings(before, after)),
    )
    return change if change.is_empty else _checked(state, change)


def _built(command: ChangeFabric) -> Fabric:
    try:
        return from_spec(command.spec)
    except BadInput as error:
        raise BadInput(f"file.{error.field}" if error.field else "file", error.message) from None


def _checked(state: State, change: FabricChange) -> FabricChange:
    refusals = [*_of_held(state, change), *_of_windows(state, change)]
    supposed = replace(state, fabric=change.after, links={}, windows={})
    refusals += _of_jobs(state, supposed, change)
    try:
        guarantees.check(state.tenants, change.after)
    except BadInput as error:
        detail = f"the tenants file does not fit: {error.message}"
        refusals.append(Refusal(FabricObstacle.PROMISE, "tenants", detail))
    return replace(change, refusals=tuple(refusals))


def _of_held(state: State, change: FabricChange) -> Iterator[Refusal]:
    """Hosts of gangs and spares that go, move, or get another name or number of GPUs."""
    before, after = change.before, change.after
    renamed, removed, moved = dict(change.renames), {*change.removed}, {*change.moved}
    for job in state.holding:
        blocks, wanted = {*job.hosts}, gpus_wanted(before, job.request.where)
        for host in sorted({*job.hosts, *job.all_spares}):
            name = before.hosts[host]
            index = after.index_by_name.get(name)
            if host not in blocks and _leaves(state, change, host):
                continue
            if name in removed:
                why = "is not in the new fabric"
            elif name in renamed:
                why = f"would be called {renamed[name]}"
            elif name in moved:
                why = "would be in another domain"
            elif index is not None and not _suits(after, index, job, wanted):
                why = "would have other GPUs or labels than the job takes"
            else:
                continue
            obstacle = FabricObstacle.GANG if host in blocks else FabricObstacle.SPARE
            runs = "runs there" if host in blocks else "has it as a spare"
            detail = f"host {name} {why}, and job {job.name} {runs}: drain it first"
            yield Refusal(obstacle, name, detail, job.name)


def _suits(after: Fabric, index: int, job: Job, gpus: int) -> bool:
    where = job.request.where
    try:
        constraints.check(after, where)
    except BadInput:
        return True  # of the job, not of one host
    bit = 1 << index
    is_like = int(after.by_host.gpus[index]) == gpus == gpus_wanted(after, where)
    return is_like and bool(labelled(after, where, bit))


def _leaves(state: State, change: FabricChange, index: int) -> bool:
    """Whether the host is drained, and goes, moves or gets another name: nobody needs it, so a job
    that has it as a spare lets it go."""
    name = change.before.hosts[index]
    is_touched = name in (*change.removed, *change.moved, *dict(change.renames))
    return is_touched and hostset.has(state.index.unhealthy, index)


def _released(state: State, change: FabricChange, now_ns: int) -> Iterator[SparesChanged]:
    """Jobs let spares go that are drained and leave."""
    names = change.before.names
    for job in state.holding:
        left = {host for host in job.all_spares if _leaves(state, change, host)}
        if left:
            yield SparesChanged(
                now_ns,
                job.name,
                names([host for host in job.spares if host not in left]),
                f"releases {', '.join(names(sorted(left)))}: not where it was in the new fabric",
                names([host for host in job.present.lent if host not in left]),
            )


def _of_windows(state: State, change: FabricChange) -> Iterator[Refusal]:
    removed = {*change.removed}
    for name, booking in state.windows.items():
        if booking.window.kind is WindowKind.RESERVATION:
            for host in booking.window.hosts:
                if host in removed:
                    detail = f"host {host} is held by window {name}: delete or change it first"
                    yield Refusal(FabricObstacle.RESERVED, host, detail)


def _of_jobs(state: State, supposed: State, change: FabricChange) -> Iterator[Refusal]:
    """Live jobs that no host, tier or label of the new fabric would do for. Those that are alike
    are looked at once."""
    reasons = dict[tuple[object, ...], str]()
    for job in state.jobs.values():
        spec = job.spec
        stores = spec.dataset, spec.checkpoint.store
        owner = spec.tenant, spec.priority_class
        key = (spec.request, spec.min_dp, owner, spec.affinity, stores)
        if key not in reasons:
            reasons[key] = _never(supposed, change.after, spec)
        if reasons[key]:
            held = "waits" if job.state is JobState.QUEUED else f"is {job.state}"
            detail = f"job {job.name} {held}, and could not start there: {reasons[key]}"
            yield Refusal(FabricObstacle.JOB, job.name, detail, job.name)


def _never(supposed: State, after: Fabric, spec: JobSpec) -> str:
    """Why the job could never start on the empty fabric; "" when it could."""
    try:
        constraints.check(after, spec.request.where)
        affinity.check(after, spec.affinity)
        never = impossible(after, spec) or beyond_quota(supposed, spec)
    except BadInput as error:
        return f"{error.field}: {error.message}"
    return "" if never is None else never.reason


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else shown


# --- what differs --------------------------------------------------------------------------


def _renames(
    before: Fabric, after: Fabric, stated: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """The renames that are stated, and domains that have another name and the same hosts.

    Raises: BadInput for one that cannot be.
    """
    was, now = {*before.hosts, *_domains(before)}, {*after.hosts, *_domains(after)}
    renames = dict[str, str]()
    for at, (old, new) in enumerate(stated):
        field = f"renames.{at}"
        if old not in was:
            raise BadInput(field, f"no host and no domain {old!r} in the present fabric")
        if new not in now:
            raise BadInput(field, f"no host and no domain {new!r} in the new fabric")
        if old in now:
            raise BadInput(field, f"{old} is in the new fabric as well")
        if new in was:
            raise BadInput(field, f"{new} is in the present fabric already")
        if (old in before.index_by_name) != (new in after.index_by_name):
            raise BadInput(field, f"one of {old} and {new} is a host, the other a domain")
        if old in renames or new in renames.values():
            raise BadInput(field, "a name is renamed twice")
        renames[old] = new
    taken = {*renames, *renames.values()}
    for tier in range(min(len(before.tiers), len(after.tiers))):
        pairs = _match_domains(before, after, tier, renames)
        for old, new in pairs.items():
            if old not in now and new not in was and not {old, new} & taken:
                renames[old] = new
    return tuple(renames.items())


def _match_domains(
    before: Fabric, after: Fabric, tier: int, renames: Mapping[str, str]
) -> dict[str, str]:
    """Old and new domains of a tier that have hosts in common with each other and with no other."""
    onward, back = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for i, host in _hosts(before):
        index = after.index_by_name.get(renames.get(host, host))
        if index is not None:
            old, new = before.domain(i, tier), after.domain(index, tier)
            onward[old].add(new)
            back[new].add(old)
    alone = {old: next(iter(news)) for old, news in onward.items() if len(news) == 1}
    return {old: new for old, new in alone.items() if len(back[new]) == 1}


def _hosts(fabric: Fabric) -> Iterator[tuple[int, str]]:
    return enumerate(fabric.hosts)


def _domains(fabric: Fabric) -> dict[str, float]:
    """Bytes per second of each domain's uplink, by name."""
    return {
        name: float(bytes_per_s)
        for tier in fabric.tiers
        for name, bytes_per_s in zip(tier.domains, tier.uplink_bytes_per_s.tolist(), strict=True)
    }


def _place(fabric: Fabric, host: int, renames: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Each tier with the host's domain there, as it will be called."""
    named = ((tier.name, fabric.domain(host, at)) for at, tier in enumerate(fabric.tiers))
    return tuple((tier, renames.get(domain, domain)) for tier, domain in named)


def _hardware(fabric: Fabric) -> list[tuple[object, ...]]:
    """GPUs and their kind, speeds and labels of every host."""
    labels: list[list[tuple[str, str]]] = [[] for _ in fabric.hosts]
    for key, by_value in sorted(fabric.labels.items()):
        for value, hosts in sorted(by_value.items()):
            for host in hostset.members(hosts) if hosts else ():
                labels[host].append((key, value))
    own = fabric.by_host
    rates = zip(own.gpus.tolist(), own.nic_gbps.tolist(), own.scale_up_gbps.tolist(), strict=True)
    groups = map(own.groups, range(fabric.host_count))
    kinds = (own.kinds_of([host])[0].name for host in range(fabric.host_count))
    return [
        (*each, group, kind, *of)
        for each, group, kind, of in zip(rates, groups, kinds, labels, strict=True)
    ]


def _settings(before: Fabric, after: Fabric) -> Iterator[str]:
    for name in ("name", "kind", "is_joined", "gpus_per_host", "nic_gbps", "scale_up_gbps"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name.removeprefix('is_')} {old} -> {new}"
    tiers = [[tier.name for tier in fabric.tiers] for fabric in (before, after)]
    if tiers[0] != tiers[1]:
        yield f"tiers {', '.join(tiers[0]) or 'none'} -> {', '.join(tiers[1]) or 'none'}"
    for key in ("routing", "storage", "power_kw", "power_caps_kw"):
        stated = [json.dumps(fabric.spec.get(key, "none")) for fabric in (before, after)]
        if stated[0] != stated[1]:
            yield f"{key} {' -> '.join(stated)}".replace('"', "")
