"""The scheduler as four pure functions over values.

    admit (state, command, now_ns) -> events | Rejected    check what somebody asks
    decide(state, now_ns, options)  -> Plan                 slow: order, backfill, placement
    commit(state, plan, now_ns)    -> events | Conflict    fast: re-check on the newest state
    apply (state, event)           -> State                the only way state changes

A complete scheduler in six lines:

    state = replay([FabricLoaded(0, PRESETS["roce-24k"])])
    for command in commands:
        state = replay(admit(state, command, now_ns), state)
        state = replay(commit(state, decide(state, now_ns, Limits()), now_ns), state)

Nothing here reads a clock, a file, the network, randomness or a logger; times and
ids arrive as arguments. The live service, the dry run and the simulator call these
same functions. Rooms, lower ones first: collections, policies, model, tenancy, rules,
fold, capacity, admission, commit; then preemption, queue, restart, spares, defrag, which
decide.py puts together; explain.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler.core.admission.admit import Code, Rejected, Violation, admit
    from scheduler.core.commit.commit import Conflict, commit
    from scheduler.core.decide import decide
    from scheduler.core.explain.dryrun import DryRun, dry_run
    from scheduler.core.explain.explain import explain
    from scheduler.core.explain.reason import Reason
    from scheduler.core.fold.apply import apply, replay
    from scheduler.core.model.job import Job, JobSpec
    from scheduler.core.model.lifecycle import HostState, JobState
    from scheduler.core.model.plan import Plan
    from scheduler.core.model.scheduling_options import SchedulingOptions
    from scheduler.core.model.state import State
    from scheduler.core.policies.tenants import Tenants

_MODULES = {
    "admission.admit": ("Code", "Rejected", "Violation", "admit"),
    "fold.apply": ("apply", "replay"),
    "commit.commit": ("Conflict", "commit"),
    "decide": ("decide",),
    "model.job": ("Job", "JobSpec"),
    "model.lifecycle": ("HostState", "JobState"),
    "model.plan": ("Plan",),
    "model.scheduling_options": ("SchedulingOptions",),
    "explain.dryrun": ("DryRun", "dry_run"),
    "explain.explain": ("explain",),
    "explain.reason": ("Reason",),
    "model.state": ("State",),
    "policies.tenants": ("Tenants",),
}  # module -> names, loaded when they are asked for: who reads a job file decides nothing
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


class _Core(ModuleType):
    """`scheduler.core.decide` stays the function, also once the module of that name is loaded."""

    def __getattr__(self, name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _MODULE_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Core
