"""Past-tense facts. The log is a list of these; state is their fold.

Hosts stand by name: a log must be readable without the fabric's numbering.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from placement.workload.request import StepBound, TierCut
from scheduler.core.model.dependency import Dependency
from scheduler.core.model.job import JobSpec
from scheduler.core.model.lifecycle import Hold, HostMove, JobState, LinkMove, Mover, RequeueCause
from scheduler.core.model.restart_option import WeighedOptions
from scheduler.core.model.window import Window
from scheduler.core.policies.health import HealthPolicy
from scheduler.core.policies.job_terms import Holders, StopCause
from scheduler.core.policies.tenants import Tenants


class FabricLoaded(Struct, frozen=True):
    """The fabric of a new log was loaded. `spec` is the content of the fabric file, so that a
    replay never reads today's."""

    time_ns: int
    spec: Mapping[str, Any]


class FabricChanged(Struct, frozen=True):
    """The fabric is another from here on. `spec`: as of FabricLoaded. `renames`: hosts and domains
    that have another name, each as (old, new)."""

    time_ns: int
    spec: Mapping[str, Any]
    renames: tuple[tuple[str, str], ...] = ()
    request_id: str = ""


class TenantsLoaded(Struct, frozen=True):
    """The tenants file was replaced. `digest` names the content."""

    time_ns: int
    digest: str
    tenants: Tenants


class NamesQualified(Struct, frozen=True):
    """Jobs known by NAME alone are known as TENANT/NAME from here on: callers say who they are, and
    the name of a job says whose it is."""

    time_ns: int


class JobSubmitted(Struct, frozen=True):
    """`user`: whose job it is; "" where callers are not asked who they are. `dependencies`: the
    jobs that it depends on, those among them that have ended with how."""

    time_ns: int
    uid: str
    spec: JobSpec
    request_id: str = ""
    user: str = ""
    dependencies: tuple[Dependency, ...] = ()


class JobUpdated(Struct, frozen=True):
    """The specification of the job changed; its gang is the same. `dependencies`: from here on."""

    time_ns: int
    name: str
    spec: JobSpec
    request_id: str = ""
    dependencies: tuple[Dependency, ...] = ()


class JobHeld(Struct, frozen=True):
    """The job is not considered until it is released; a gang that runs goes on."""

    time_ns: int
    name: str
    hold: Hold
    reason: str = ""
    request_id: str = ""


class JobReleased(Struct, frozen=True):
    """The hold of a job ended."""

    time_ns: int
    name: str
    request_id: str = ""


class JobEligible(Struct, frozen=True):
    """The begin time of a waiting job has come: it is considered from here on."""

    time_ns: int
    name: str


class JobStarted(Struct, frozen=True):
    """A gang started. `hosts[i]` carries block i of the gang; the blocks `copies[i]` have its state
    in memory, where the job asks for that. `step`: of a job whose compute is known. `gpus`: those
    of its only host, of a job that takes a part of it. `gpu_watts`: that each of its GPUs is held
    to, 0: to none."""

    time_ns: int
    name: str
    attempt: int
    hosts: tuple[str, ...]
    spares: tuple[str, ...]
    cuts: tuple[TierCut, ...]
    lower_bound: int
    notes: tuple[str, ...] = ()
    copies: Holders = ()
    step: StepBound | None = None
    gpus: tuple[int, ...] = ()
    gpu_watts: int = 0


class JobsReserved(Struct, frozen=True):
    """Latest starts of waiting jobs under the policy *conservative*. `shares`: where windows tell
    hosts apart, how many hosts each has that the same windows cover as the host that is named."""

    time_ns: int
    starts: tuple[tuple[str, int], ...]
    shares: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()


class HostSwap(Struct, frozen=True):
    """Block `block` moved from host `left` to host `joined`, which loads its state from the
    memory of host `source`; empty: from storage."""

    block: int
    left: str
    joined: str
    source: str = ""


class GangSwapped(Struct, frozen=True):
    """Some hosts were replaced, every other rank stayed where it was. `restart_options`: what was
    weighed, after a failure. `copies`: who has whose state from here on; empty: as before.
    `step_s`: seconds of a step from here on, of a job whose compute is known. `gpus`: those of its
    host from here on, of a job that takes a part of one."""

    time_ns: int
    name: str
    attempt: int
    swaps: tuple[HostSwap, ...]
    cuts: tuple[TierCut, ...]
    restart_options: WeighedOptions = ()
    copies: Holders = ()
    step_s: float | None = None
    gpus: tuple[int, ...] = ()


class GangResized(Struct, frozen=True):
    """The gang has `dp` replicas from here on, and lies on these hosts, in block order.
    `preempted_by`: the job that has the hosts of the replicas that go, if one wanted them.
    `attempt`: the one that ran, where the role that resizes begins again alone and the others run
    on. `spec`: from here on, where its owner asked for the size."""

    time_ns: int
    name: str
    attempt: int
    dp: int
    hosts: tuple[str, ...]
    spares: tuple[str, ...]
    cuts: tuple[TierCut, ...]
    lower_bound: int = 0
    notes: tuple[str, ...] = ()
    reason: str = ""
    restart_options: WeighedOptions = ()
    copies: Holders = ()
    preempted_by: str = ""
    step: StepBound | None = None
    spec: JobSpec | None = None
    request_id: str = ""


class SparesChanged(Struct, frozen=True):
    """The job holds these spares from here on: some were used by others, or released, or hosts took
    the place of used ones. `lent`: more, which preemptible jobs run on."""

    time_ns: int
    name: str
    spares: tuple[str, ...]
    reason: str
    lent: tuple[str, ...] = ()


class JobRequeued(Struct, frozen=True):
    """A gang gave up its hosts and waits again."""

    time_ns: int
    name: str
    reason: str
    cause: RequeueCause
    restart_options: WeighedOptions = ()
    request_id: str = ""


class JobPreempted(Struct, frozen=True):
    """A gang was evicted so that `preempted_by`, which starts next, has its hosts."""

    time_ns: int
    name: str
    preempted_by: str
    reason: str


class GangLaunched(Struct, frozen=True):
    """All ranks of an attempt have started. Only of jobs that agents start."""

    time_ns: int
    name: str
    attempt: int


class LaunchFailed(Struct, frozen=True):
    """The ranks of `host` could not be started: the attempt is over."""

    time_ns: int
    name: str
    attempt: int
    host: str
    reason: str


class RankFailed(Struct, frozen=True):
    """A rank ended other than well, before any other of its gang: the attempt is over. Ranks that
    end after it for its sake are not in the log. `cause`: None in logs of before. `code`: its exit
    code. `step`: how far the attempt had come, as its ranks said."""

    time_ns: int
    name: str
    attempt: int
    rank: int
    host: str
    reason: str
    cause: StopCause | None = None
    code: int = 0
    step: int = 0


class RoleRestarted(Struct, frozen=True):
    """A role of a gang begins again alone, for one of its ranks ended other than well; the others
    run on in the same attempt. `cause`, `code`: as of RankFailed."""

    time_ns: int
    name: str
    attempt: int
    role: str
    rank: int
    host: str
    reason: str
    cause: StopCause | None = None
    code: int = 0

    @property
    def text(self) -> str:
        return f"role {self.role} began again, for rank {self.rank} on {self.host} {self.reason}"


class GangHung(Struct, frozen=True):
    """Steps of an attempt have stopped coming, `reason` says since when and which ranks lag; "":
    they come again."""

    time_ns: int
    name: str
    attempt: int
    reason: str


class ChannelOpened(Struct, frozen=True):
    """Somebody ran a command beside a rank, or connected to `port` of its host. `command` empty:
    the shell of its user."""

    time_ns: int
    name: str
    attempt: int
    rank: int
    host: str
    command: tuple[str, ...] = ()
    port: int = 0


class CheckpointSaved(Struct, frozen=True):
    """The ranks of an attempt reported a checkpoint at `where`, in their own words; "": agents have
    all copies of it in the memory of the gang's hosts. At most one a minute and job of either kind:
    others between are not in the log. `uid`: of a job that has ended meanwhile, as its ranks saved
    when they were told to stop; else ""."""

    time_ns: int
    name: str
    attempt: int
    step: int
    where: str
    uid: str = ""


class Defragmented(Struct, frozen=True):
    """Defragmentation was due by policy, or an operator had it done: `goal`, for what.
    `sentence`: the moves, which stand before this, or why there are none."""

    time_ns: int
    sentence: str
    goal: str = ""
    request_id: str = ""


class JobEnded(Struct, frozen=True):
    """`outcome`: completed, failed or cancelled. `has_started`: False of a job that was cancelled
    before its first attempt."""

    time_ns: int
    name: str
    outcome: JobState
    reason: str = ""
    request_id: str = ""
    has_started: bool = True


class HostMoved(Struct, frozen=True):
    """A host went to another state of its lifecycle. `cause`: whose word moved it. `signal`: the
    report that did, a name of SIGNALS, where one did; `reason` is for people."""

    time_ns: int
    host: str
    move: HostMove
    reason: str = ""
    request_id: str = ""
    cause: Mover = Mover.OPERATOR
    signal: str = ""


class HostSignalled(Struct, frozen=True):
    """A signal that is kept on record; what it does to the host stands after it. `host`: or
    a domain. `value`, `gpu`, `xid`: as reported."""

    time_ns: int
    host: str
    signal: str
    detail: str = ""
    request_id: str = ""
    value: int = 0
    gpu: int | None = None
    xid: int = 0


class HealthLoaded(Struct, frozen=True):
    """This health policy replaces the one before."""

    time_ns: int
    policy: HealthPolicy


class HostsJudged(Struct, frozen=True):
    """The health policy evaluated all hosts; the moves that it caused precede this event."""

    time_ns: int


class LinkReported(Struct, frozen=True):
    """The uplink of domain `link` carries this share of what it was built for: 1 up, 0 down."""

    time_ns: int
    link: str
    share: float
    detail: str = ""
    request_id: str = ""


class LinkMoved(Struct, frozen=True):
    """An operator said which gangs may cross the uplink of domain `link`."""

    time_ns: int
    link: str
    move: LinkMove
    reason: str = ""
    request_id: str = ""


class WindowSet(Struct, frozen=True):
    """A window was created or changed; its hosts are named."""

    time_ns: int
    window: Window
    request_id: str = ""


class WindowOpened(Struct, frozen=True):
    time_ns: int
    name: str


class WindowClosed(Struct, frozen=True):
    """The window reached its end."""

    time_ns: int
    name: str


class WindowRemoved(Struct, frozen=True):
    """An operator removed the window before its end."""

    time_ns: int
    name: str
    reason: str = ""
    request_id: str = ""


class RequestAnswered(Struct, frozen=True):
    """A request with an id changed nothing, as all was so already. `request`: it, in words.
    `uid`: of the job that it was about. `answer`: as in CompletedRequest."""

    time_ns: int
    request_id: str
    request: str
    uid: str = ""
    answer: str = ""


RequestEvent = (  # has the id of the request that caused it
    FabricChanged
    | JobSubmitted
    | JobUpdated
    | JobHeld
    | JobReleased
    | GangResized
    | JobRequeued
    | Defragmented
    | JobEnded
    | HostMoved
    | HostSignalled
    | LinkReported
    | LinkMoved
    | WindowSet
    | WindowRemoved
    | RequestAnswered
)

ClusterEvent = (
    FabricLoaded | FabricChanged | TenantsLoaded | NamesQualified | Defragmented | RequestAnswered
)

JobEvent = (
    JobSubmitted
    | JobUpdated
    | JobHeld
    | JobReleased
    | JobEligible
    | JobsReserved
    | JobStarted
    | GangSwapped
    | GangResized
    | SparesChanged
    | JobRequeued
    | JobPreempted
    | GangLaunched
    | LaunchFailed
    | RankFailed
    | RoleRestarted
    | GangHung
    | ChannelOpened
    | CheckpointSaved
    | JobEnded
)

HostEvent = HostMoved | HostSignalled | HealthLoaded | HostsJudged

LinkEvent = LinkReported | LinkMoved

WindowEvent = WindowSet | WindowOpened | WindowClosed | WindowRemoved

Event = ClusterEvent | JobEvent | HostEvent | LinkEvent | WindowEvent
