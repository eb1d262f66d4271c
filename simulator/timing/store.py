"""How long checkpoints take to write and to load, and what gangs that write to one store cost
each other.

A host moves no more than its network cards carry, however fast the store is. The store is
shared by all gangs: while one writes, the others are taken to write what they write on average,
for their phases fall as they may (the fluid rule of network.py). With u = own rate while
writing + mean rates of the others, over the rate of the store, a write takes max(1, u) times
as long; and when the mean rates alone ask for more than the store has, no period is shorter
than that makes it. Loads wait in the same way, and count for nobody else: they are rare.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from muster.structs import struct
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import BYTES_PER_S
from placement.workload.flops import parameter_count
from placement.workload.request import Request
from simulator.timing.times_file import CheckpointParameters

BILLION = 1_000_000_000  # mean rates are whole parts of the store's, so that sums are exact


@struct(frozen=True, slots=True)
class Crowding:
    """How writers slow each other. `stretch`: how many times as long a write takes as alone.
    `demand`: mean rates of all writers over the rate of the store; beyond 1 the periods of all are
    that much longer."""

    stretch: float = 1.0
    demand: float = 0.0


class CheckpointStore:
    """The remote store of one replay and the gangs that write to it. Memory: O(gangs)."""

    def __init__(self, fabric: Fabric, point: CheckpointParameters) -> None:
        self._gpus_per_host = fabric.gpus_per_host
        self._cards_per_s = fabric.gpus_per_host * fabric.nic_gbps * BYTES_PER_S
        self._point = point
        self._writers: dict[str, tuple[float, int]] = {}  # peak and mean rate, of the store's
        self._by_peak: list[tuple[float, str]] = []
        self._mean = 0

    def write_s(self, request: Request) -> float:
        """Return the seconds of a write of a gang alone, without the stall."""
        return self.transfer_s(request, self._point.kind, self._point.write_gb_per_s)

    def transfer_s(self, request: Request, kind: str, gb_per_s: float) -> float:
        """Return seconds to write or load the state of a gang, of which each part is moved once.
        `gb_per_s`: of the store if `kind` is remote, else of a host."""
        state, hosts = self._bytes(request), request.hosts_needed(self._gpus_per_host)
        rate = gb_per_s * 1e9
        if kind == "remote":
            return state / min(rate, hosts * self._cards_per_s)
        return state / (hosts * (rate if kind == "local" else min(rate, self._cards_per_s)))

    def _bytes(self, request: Request) -> float:
        if request.model is not None:
            return self._point.bytes_per_parameter * parameter_count(request.model)
        return self._point.gb_per_gpu * 1e9 * request.parallelism.world_size

    def _peak(self, request: Request) -> float:
        hosts = request.hosts_needed(self._gpus_per_host)
        return min(1.0, hosts * self._cards_per_s / (self._point.write_gb_per_s * 1e9))

    def begin(self, name: str, request: Request) -> Sequence[str]:
        """Note that a gang of this shape writes from now on; return the gangs whose writes may take
        another time now. Cost: O(them)."""
        if self._point.kind != "remote" or not (state := self._bytes(request)):
            return ()
        period_s = self._point.interval_s + self.write_s(request) + self._point.stall_s
        mean = round(BILLION * state / (self._point.write_gb_per_s * 1e9) / period_s)
        writer = self._peak(request), mean
        self._writers[name] = writer
        insort(self._by_peak, (writer[0], name))
        self._mean += mean
        return self._crowded()

    def end(self, name: str) -> Sequence[str]:
        """Note that a job writes no more; see `begin`. One that never wrote is no error."""
        if name not in self._writers:
            return ()
        crowded = self._crowded()
        peak, mean = self._writers.pop(name)
        del self._by_peak[bisect_left(self._by_peak, (peak, name))]
        self._mean -= mean
        return [other for other in crowded if other != name]

    def _crowded(self) -> list[str]:
        """Writers that fill the store together with all others."""
        least = 1 - self._mean / BILLION
        return [name for _, name in self._by_peak[bisect_left(self._by_peak, (least, "")) :]]

    def crowding(self, name: str) -> Crowding:
        """Return how much others slow the writes of a gang; no slowing for a gang that does not
        write."""
        if name not in self._writers:
            return Crowding()
        peak, mean = self._writers[name]
        return Crowding(max(1.0, peak + (self._mean - mean) / BILLION), self._mean / BILLION)

    def load_stretch(self, request: Request) -> float:
        """Return how many times as long as alone a load takes, for a gang that does not write."""
        return max(1.0, self._peak(request) + self._mean / BILLION)
