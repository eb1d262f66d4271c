"""What a way back to work costs a gang, in GPU-seconds, beyond what every way costs.

A larger cut makes every step longer for the rest of the run, and only steps of a job whose
model is known have a length in seconds (placement.objective.step_time). A gang without some
replicas does less until hosts are repaired and it grows again, one that waits does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from muster.structs import struct
from placement.fabric.constraints import gpus_wanted
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from placement.workload.request import TierCut
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.scheduling_options import SchedulingOptions, expected_end_ns
from scheduler.core.model.state import State
from scheduler.core.policies.spares import DAY_S


@struct(frozen=True)
class RestartPrices:
    """The costs of each way in which one gang may go on, at one moment. `repair_days`: until a host
    is back; `fabric`: with what the gang's neighbours leave of uplinks, by which steps are
    compared."""

    state: State
    job: Job
    now_ns: int
    options: SchedulingOptions
    repair_days: float
    fabric: Fabric

    @cached_property
    def _per_host(self) -> int:
        return gpus_wanted(self.state.loaded_fabric, self.job.request.where)

    @cached_property
    def gpus(self) -> int:
        return len(self.job.hosts) * self._per_host

    @cached_property
    def common_s(self) -> int:
        """GPU-seconds that every way costs: standing still so far, work done again, the restart."""
        job = self.job
        stop_ns = self.now_ns if job.present.stop_ns is None else job.present.stop_ns
        lost_ns = job.loss_ns(stop_ns, self.state.tenants.preemption.costs)
        return (lost_ns + max(0, self.now_ns - stop_ns)) * self.gpus // SECOND_NS

    @cached_property
    def remaining_s(self) -> int:
        """Seconds that the gang would have run on, as far as is known."""
        return (expected_end_ns(self.job, self.now_ns, self.options) - self.now_ns) // SECOND_NS

    @cached_property
    def _step_s(self) -> float | None:
        if not self.job.spec.request.has_step_time:
            return None
        return step_time(self.fabric, self.job.request, self.job.hosts).seconds

    def rise(self, cuts: Sequence[TierCut]) -> int:
        """Return by how many bytes per step the cut of the outermost tier exceeds that of the
        present placement."""
        if not cuts or not self.job.present.cuts:
            return 0
        return cuts[0].bytes_per_step - self.job.present.cuts[0].bytes_per_step

    def slower(self, hosts: Sequence[int]) -> float | None:
        """Return the share by which steps on these hosts are longer than now; None where no model
        tells."""
        if not self._step_s:
            return None
        then_s = step_time(self.fabric, self.job.request, hosts).seconds
        return max(0.0, then_s / self._step_s - 1)

    def slow_s(self, slower: float | None) -> int:
        """Return the GPU-seconds that longer steps cost until the end."""
        return round((slower or 0.0) * self.remaining_s * self.gpus)

    def shrunk_s(self, hosts_left: int) -> int:
        """Return the GPU-seconds that dropped replicas lose until their hosts are back."""
        lost_gpus = self.gpus - hosts_left * self._per_host
        return round(lost_gpus * min(self.remaining_s, self.repair_days * DAY_S))

    @property
    def waiting_s(self) -> int:
        """Return the GPU-seconds that the whole gang loses until a host is repaired."""
        return round(self.gpus * self.repair_days * DAY_S)
