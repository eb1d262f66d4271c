"""What a placement was asked for, as its answers are shown."""

from __future__ import annotations

from muster.structs import struct
from placement import Hint
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import Request
from scheduler.core.policies.job_terms import PEER_INTERVAL_S
from scheduler.core.policies.storage_use import StorageUse
from scheduler.core.spares.outlook import SpareShortage


@struct(frozen=True, slots=True)
class Question:
    """A question to the placer: the job's name and gang, on which fabric, with which hosts free,
    near which old placement. `legal_dp`: the sizes of an elastic gang, which `request` is at one
    of. `peers`: how many hosts have copies of each one's state, renewed every `peer_interval_s`.
    `shortages`: zones of the gang that would lack spares. `cpu_ranks`: of each host where ranks are
    on CPUs alone, else 0. `storage_use`: reads and writes of the gang, None where the fabric file
    states no storage; `beside`: those of other gangs. `power_cap_w`: that its GPUs may be held to
    where power is short, 0: they may not."""

    name: str
    fabric: Fabric
    request: Request
    free: HostSet
    near: Hint | None = None
    legal_dp: tuple[int, ...] = ()
    peers: int = 0
    peer_interval_s: int = PEER_INTERVAL_S
    shortages: tuple[SpareShortage, ...] = ()
    cpu_ranks: int = 0
    storage_use: StorageUse | None = None
    beside: tuple[StorageUse, ...] = ()
    power_cap_w: int = 0
