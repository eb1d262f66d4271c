"""What a state keeps of its facts so that nobody has to look at all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.structs import derived_from, struct
from placement.fabric.hostset import HostSet
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap


@struct(frozen=True)
class Index:
    """Sets and orders of jobs and hosts that a decision would otherwise look for among all. All of
    it follows from jobs, hosts, windows, requests and lineages, but for the order in which gangs
    started, stopped and came to share a host. fold.index alone keeps it up to date, but for what
    names, numbers or owns all of it anew (qualified_names, fold.fabric, ownership).

    `queue`: names of the queued jobs that are considered, in order; `deferred`: of queued jobs that
    are not yet, with the time from which on they are as far as is known. `dependants`: deferred
    jobs by the uid of a live job that they depend on. `running`: names of jobs that hold hosts, in
    order of start. `interrupted`: those among them that a failure interrupted, the last one last;
    `special`: those that want more than hosts for their gang.

    `held`: hosts of gangs and spares. `lent`: spares that others may be on: their holders have them
    back. `shared`: of hosts that jobs hold parts of, the names of these jobs. `unhealthy`: hosts
    that nothing may begin on; `probation`: hosts that preemptible gangs alone may begin on;
    `golden`: that large gangs take first. `closed`: hosts of open maintenance windows, whatever
    their own state.

    `ended_counts`, `request_counts`, `lineage_counts`: how many of these each tenant has.
    """

    queue: NameList = NameList()
    deferred: Mapping[str, int] = field(default_factory=PersistentMap)
    dependants: Mapping[str, tuple[str, ...]] = field(default_factory=PersistentMap)
    running: NameList = NameList()
    interrupted: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    held: HostSet = 0
    lent: HostSet = 0
    shared: Mapping[int, tuple[str, ...]] = field(default_factory=PersistentMap)
    unhealthy: HostSet = 0
    probation: HostSet = 0
    golden: HostSet = 0
    closed: HostSet = 0
    ended_counts: Mapping[str, int] = field(default_factory=PersistentMap)
    request_counts: Mapping[str, int] = field(default_factory=PersistentMap)
    lineage_counts: Mapping[str, int] = field(default_factory=PersistentMap)

    @derived_from("deferred")
    def first_deferred_ns(self) -> int:
        """Return when the first deferred job is considered."""
        return min(self.deferred.values(), default=2**63 - 1)

    @derived_from("held", "lent", "unhealthy", "closed")
    def taken(self) -> HostSet:
        """Hosts that somebody holds, or has lent, or on which nothing may begin."""
        return self.held | self.lent | self.out_of_service

    @property
    def out_of_service(self) -> HostSet:
        """Hosts on which nothing may begin, for their own state or for a maintenance window."""
        return self.unhealthy | self.closed
