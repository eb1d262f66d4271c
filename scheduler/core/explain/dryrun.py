"""The dry run: admit a job, apply that, and decide, on a copy of the state.

There is no second assembly of the stages: what the copy decides about the job is what the
scheduler would decide if the job were submitted at this moment and nothing else happened.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.structs import replace, struct
from placement.fabric.constraints import labelled
from placement.workload.request import Insufficient, Placement, Undecided
from scheduler.core.admission.admit import admit
from scheduler.core.capacity.placer import Placer, make_placer
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.decide import decide
from scheduler.core.explain.explain import UNDECIDED, explain
from scheduler.core.explain.reason import Reason
from scheduler.core.fold.apply import replay
from scheduler.core.model.commands import SubmitJob
from scheduler.core.model.events import JobSubmitted
from scheduler.core.model.job import Job
from scheduler.core.model.plan import Plan, Start
from scheduler.core.model.rejected import Rejected
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.tenancy.quota import outer_domains
from scheduler.core.wording import sizes_text

MOST_DECISIONS = 1_000  # each starts gangs on 128 hosts at least, or all that can start

MakePlacer = Callable[[State, SchedulingOptions], Placer]


@struct(frozen=True, slots=True)
class DryRun:
    """Outcome for `job` if it were submitted now.

    `outcome`: the start that a decision would propose, or the reason why the job would wait.
    `job`: at the size at which it would start, or at its least while it waits.
    `state`: the copy on which that was decided, with the job in its queue.
    """

    state: State
    job: Job
    outcome: Start | Reason

    @property
    def answer(self) -> Placement | Insufficient | Undecided:
        """Return the outcome as `placement.place` would. Hosts free are those with the labels that
        the job asks for."""
        if isinstance(self.outcome, Start):
            return self._noted(self.outcome.placement)
        if self.outcome.cause is WaitReason.SEARCH:
            return Undecided(self.outcome.sentence)
        fabric = self.state.loaded_fabric
        free = labelled(fabric, self.job.request.where, self.state.free)
        by_domain = [(name, (free & mask).bit_count()) for name, mask in outer_domains(fabric)]
        needed, sentence = self.job.needed, self.outcome.sentence
        return Insufficient(needed, free.bit_count(), tuple(by_domain), sentence)

    def started(self, now_ns: int) -> State | None:
        """Return the copy in which the job has started; None where it would not start."""
        if not isinstance(self.outcome, Start):
            return None
        events = commit(self.state, Plan(self.state.version, (self.outcome,)), now_ns)
        return None if isinstance(events, Conflict) else replay(events, self.state)

    def _noted(self, placement: Placement) -> Placement:
        """The placement, with a note where an elastic job is smaller than it asks for."""
        full = self.job.spec.request.replicas
        if not self.job.sizes or self.job.dp == full:
            return placement
        size = f"dp {self.job.dp:,} of {full:,}"
        note = f"{size}: the largest legal size that fits ({sizes_text(self.job.sizes)})"
        return replace(placement, notes=(*placement.notes, note))


def dry_run(
    state: State,
    command: SubmitJob,
    options: SchedulingOptions,
    now_ns: int,
    placer: MakePlacer = make_placer,
) -> DryRun | Rejected:
    """Decide on a copy what the job of `command` gets, until it starts or nothing is left to
    decide. `placer`: what places gangs in these decisions.

    Of an array it is its first task. A refusal is that of `admit`. Cost: the decisions that would
    follow.
    """
    admitted = admit(state, replace(command, request_id=""), now_ns)
    if isinstance(admitted, Rejected):
        return admitted
    name = next(event.spec.name for event in admitted if isinstance(event, JobSubmitted))
    state = replay(admitted, state)
    for _ in range(MOST_DECISIONS):
        plan = decide(state, now_ns, options, placer(state, options))
        for action in plan.actions:
            if isinstance(action, Start) and action.name == name:
                job = state.jobs[name].on(len(action.placement.hosts))
                return DryRun(state, job.with_power_limit(action.gpu_watts), action)
        events = commit(state, plan, now_ns)
        if isinstance(events, Conflict) or not events:
            break
        state = replay(events, state)
    reason = explain(state, name, now_ns, options)
    if reason.cause is WaitReason.DUE:  # hosts are counted in a reason, and not placed
        reason = replace(reason, cause=WaitReason.SEARCH, sentence=UNDECIDED)
    return DryRun(state, state.jobs[name], reason)
