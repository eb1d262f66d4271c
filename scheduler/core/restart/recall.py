"""Spares that were lent come back to a gang that lost hosts: who leaves, and at what loss.

Neither the priority of a borrower nor its minimum run time count: it was lent to on that
condition. The fewest leave, those with least to lose first. An elastic one drops the replicas
that were on these hosts, any other waits in the queue, at its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from muster.structs import replace, struct
from placement import Swaps
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.shrink import resize, without_hosts
from scheduler.core.capacity.victims import cost_ns
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Recall
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.tenancy.spare_loans import SpareDebt, SpareLoans
from scheduler.core.wording import hosts_text, listed


@struct(frozen=True, slots=True)
class Recalled:
    """Borrowers that leave spares (`recalls`), and the `swaps` that use them. `lost_ns`: host-time
    that borrowers lose."""

    swaps: Swaps
    recalls: tuple[Recall, ...]
    lost_ns: int

    @property
    def note(self) -> str:
        shrunk = tuple(r.name for r in self.recalls if r.resize is not None)
        preempted = tuple(r.name for r in self.recalls if r.resize is None)
        parts = [f"preempts {listed(preempted)}"] if preempted else []
        parts += [f"{listed(shrunk)} drop replicas"] if shrunk else []
        return ", ".join(parts)


@struct(frozen=True)
class Recalls:
    """Finds borrowers of spares that may be asked to leave. `busy`: gangs for which this decision
    does something; `taken`: hosts that it has given out."""

    state: State
    now_ns: int
    options: SchedulingOptions
    busy: Collection[str]
    taken: HostSet = 0

    def back(
        self, job: Job, lent: HostSet, swaps: Callable[[HostSet], Swaps | None]
    ) -> Recalled | None:
        """Return the cheapest borrowers whose leaving lets `swaps` find hosts among the `lent`
        spares, or None where none does."""
        owing = [d for d in SpareLoans(self.state).debts(lent) if d.job.name not in self.busy]
        owing = sorted((d for d in owing if d.job.name != job.name), key=self._key)
        recalled, room = None, 0
        for debt in owing:
            room |= debt.hosts
            if (recalled := swaps(room)) is not None:
                break
        if recalled is None:
            return None
        joined = hostset.of(host for _, host in recalled.joined)
        joined_debts = [replace(d, hosts=d.hosts & joined) for d in owing if d.hosts & joined]
        recalls = tuple(self._recall(debt, job.name) for debt in joined_debts)
        return Recalled(recalled, recalls, sum(self._loss_ns(d.job) for d in joined_debts))

    def _key(self, debt: SpareDebt) -> tuple[int, str]:
        return (self._loss_ns(debt.job), debt.job.name)

    def _loss_ns(self, job: Job) -> int:
        """A gang that stands still has lost what it had to lose."""
        if job.state is JobState.INTERRUPTED:
            return 0
        return cost_ns(job, self.now_ns, self.state.tenants.preemption.costs)

    def _recall(self, debt: SpareDebt, owner: str) -> Recall:
        job, state = debt.job, self.state
        reason = f"gives back {hosts_text(debt.hosts.bit_count())} that it borrowed, for {owner}"
        if not job.sizes or job.state is not JobState.RUNNING:
            return Recall(job.name, reason)
        own = job.allocation & ~(state.index.out_of_service | debt.hosts)
        fabric = state.loaded_fabric
        shrunk = without_hosts(fabric, job, debt.hosts, own, 0, self.options.place)
        if shrunk is None:
            return Recall(job.name, reason)
        end_ns = self.now_ns + time_limit_ns(shrunk.job, self.options)
        return Recall(job.name, reason, resize(shrunk, job, reason, end_ns))
