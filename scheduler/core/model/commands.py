"""What can be asked of the scheduler. Each is checked by admit and never trusted.

`etag`, where given: of the job, host or window as the caller knows it; when it has changed the
command is refused. `request_id`: the same one again does nothing. `uid`: of the one job that is
meant; "" for whichever has the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.structs import struct
from scheduler.core.model.dependency import DependencyTerm
from scheduler.core.model.job import JobSpec
from scheduler.core.model.lifecycle import Hold, HostMove, JobState, LinkMove
from scheduler.core.model.window import Window
from scheduler.core.policies.health import HealthPolicy
from scheduler.core.policies.tenants import Tenants

LongEnded = tuple[str, str, JobState, bool]


@struct(frozen=True, slots=True)
class SubmitJob:
    """Submit a job. `uid` is fresh; `request_id` makes a retry harmless. `user`: whose job it is.
    `long_ended`: jobs that it depends on and the state has no more, as (full name, uid, how it
    ended, whether it had started)."""

    spec: JobSpec
    uid: str
    request_id: str = ""
    user: str = ""
    long_ended: tuple[LongEnded, ...] = ()


@struct(frozen=True, slots=True)
class CancelJob:
    name: str
    reason: str = ""
    etag: str = ""
    request_id: str = ""
    uid: str = ""


@struct(frozen=True, slots=True)
class UpdateJob:
    """Change a job's priority, time limit, begin time, dependencies or labels: the `fields` of the
    specification take the values given here, the rest stays. Labels by `label_keys` take those of
    `labels`, or go where it has none; the rest of them stay. `most_running`: of the field `array`,
    how many tasks of the job's array may run at a time, 0 = all."""

    name: str
    fields: tuple[str, ...]
    priority: int = 0
    priority_class: str = ""
    time_limit_s: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    etag: str = ""
    request_id: str = ""
    uid: str = ""
    label_keys: tuple[str, ...] = ()
    begin_ns: int = 0
    dependencies: tuple[DependencyTerm, ...] = ()
    cancel_unmet: bool = False
    long_ended: tuple[LongEnded, ...] = ()
    by: Hold = Hold.OWNER
    most_running: int = 0


@struct(frozen=True, slots=True)
class HoldJob:
    """Do not consider the job until it is released. `by`: the holder, owner or operator."""

    name: str
    by: Hold = Hold.OWNER
    reason: str = ""
    etag: str = ""
    request_id: str = ""
    uid: str = ""


@struct(frozen=True, slots=True)
class ReleaseJob:
    """Consider the job again. `by`: an owner releases no job that an operator holds."""

    name: str
    by: Hold = Hold.OWNER
    etag: str = ""
    request_id: str = ""
    uid: str = ""


@struct(frozen=True, slots=True)
class RequeueJob:
    """Stop the gang; the job waits again, and goes on from its checkpoint. `hold`: whether the job
    is held then. A job that has failed or was cancelled is submitted once more as it was, with the
    uid `new_uid`; "" refuses that."""

    name: str
    reason: str = ""
    hold: bool = False
    by: Hold = Hold.OWNER
    etag: str = ""
    request_id: str = ""
    uid: str = ""
    new_uid: str = ""


@struct(frozen=True, slots=True)
class ResizeJob:
    """Give a gang that runs `dp` replicas. `role`: which of its roles is resized, "" for a gang
    without roles. The placement is planned before this is checked (core.queue.requested_size)."""

    name: str
    role: str
    dp: int
    etag: str = ""
    request_id: str = ""
    uid: str = ""


@struct(frozen=True, slots=True)
class EndJob:
    """Record that the gang has ended by itself. `attempt` 0 = whichever runs; else a late report of
    an earlier attempt is refused."""

    name: str
    outcome: JobState
    attempt: int = 0
    reason: str = ""
    etag: str = ""
    request_id: str = ""
    uid: str = ""


@struct(frozen=True, slots=True)
class OpenChannel:
    """Run a command beside a rank, which `host` has, or connect to `port` of its host, if nonzero.
    `command` empty: the shell of its user."""

    name: str
    uid: str
    attempt: int
    rank: int
    host: str
    command: tuple[str, ...] = ()
    port: int = 0


@struct(frozen=True, slots=True)
class MoveHost:
    """Cordon, uncordon or drain a host, as an operator says."""

    host: str
    move: HostMove
    reason: str = ""
    etag: str = ""
    request_id: str = ""


@struct(frozen=True, slots=True)
class ReportHost:
    """Report a health signal of a host, one of health.SIGNALS. `host` may be a domain where the
    signal says so.

    `value`: how many errors, 0 for one. `gpu`: which, None for all or none. `xid`: its code.
    """

    host: str
    signal: str
    detail: str = ""
    request_id: str = ""
    value: int = 0
    gpu: int | None = None
    xid: int = 0


@struct(frozen=True, slots=True)
class ReportLink:
    """Report what the uplink of domain `link` carries of its built bandwidth: 1 up, 0 down."""

    link: str
    share: float
    detail: str = ""
    request_id: str = ""


@struct(frozen=True, slots=True)
class MoveLink:
    """Cordon, uncordon or drain the uplink of domain `link`, as an operator says."""

    link: str
    move: LinkMove
    reason: str = ""
    etag: str = ""
    request_id: str = ""


@struct(frozen=True, slots=True)
class ChangeFabric:
    """Replace the fabric by another one. `spec`: the content of its file. `renames`: hosts and
    domains that have another name in it, each as (old, new). `etag`: the digest of the fabric as
    known."""

    spec: Mapping[str, Any]
    renames: tuple[tuple[str, str], ...] = ()
    etag: str = ""
    request_id: str = ""


@struct(frozen=True, slots=True)
class LoadTenants:
    """Replace quotas, shares and priority classes by those of a tenants file."""

    tenants: Tenants


@struct(frozen=True, slots=True)
class LoadHealth:
    """Replace the health policy."""

    policy: HealthPolicy


@struct(frozen=True, slots=True)
class SetWindow:
    """Set a maintenance window or a reservation. `is_change`: change a window that exists."""

    window: Window
    is_change: bool = False
    etag: str = ""
    request_id: str = ""


@struct(frozen=True, slots=True)
class RemoveWindow:
    name: str
    reason: str = ""
    etag: str = ""
    request_id: str = ""


JobCommand = UpdateJob | HoldJob | ReleaseJob | RequeueJob | CancelJob | EndJob  # of one there is

RequestCommand = (  # may have the id of the request that it is
    SubmitJob
    | JobCommand
    | MoveHost
    | ReportHost
    | ReportLink
    | MoveLink
    | ChangeFabric
    | SetWindow
    | RemoveWindow
)

Command = RequestCommand | OpenChannel | LoadTenants | LoadHealth
