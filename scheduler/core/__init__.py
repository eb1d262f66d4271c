"""The scheduler as four pure functions over values.

    admit (state, command, now_ns) -> events | Rejected    check what somebody asks
    decide(state, now_ns, limits)  -> Plan                 slow: order, backfill, placement
    commit(state, plan, now_ns)    -> events | Conflict    fast: re-check on the newest state
    apply (state, event)           -> State                the only way state changes

A complete scheduler in six lines:

    state = replay([FabricLoaded(0, PRESETS["roce-24k"])])
    for command in commands:
        state = replay(admit(state, command, now_ns), state)
        state = replay(commit(state, decide(state, now_ns, Limits()), now_ns), state)

Nothing here reads a clock, a file, the network, randomness or a logger; times and
ids arrive as arguments. The live service, the dry run and the simulator call these
same functions.
"""

from scheduler.core.admit import Code, Rejected, Violation, admit
from scheduler.core.apply import apply, replay
from scheduler.core.commit import Conflict, commit
from scheduler.core.decide import decide
from scheduler.core.job import Job, JobSpec
from scheduler.core.lifecycle import HostState, JobState
from scheduler.core.plan import Plan
from scheduler.core.policy import Limits, Policy
from scheduler.core.reasons.explain import dry_run, explain
from scheduler.core.reasons.reason import Reason
from scheduler.core.state import State
from scheduler.core.tenancy.tenants import Tenants

__all__ = [
    "Code",
    "Conflict",
    "HostState",
    "Job",
    "JobSpec",
    "JobState",
    "Limits",
    "Plan",
    "Policy",
    "Reason",
    "Rejected",
    "State",
    "Tenants",
    "Violation",
    "admit",
    "apply",
    "commit",
    "decide",
    "dry_run",
    "explain",
    "replay",
]
