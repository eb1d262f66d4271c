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

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "admit": ("Code", "Rejected", "Violation", "admit"),
    "apply": ("apply", "replay"),
    "commit": ("Conflict", "commit"),
    "decide": ("decide",),
    "job": ("Job", "JobSpec"),
    "lifecycle": ("HostState", "JobState"),
    "plan": ("Plan",),
    "policy": ("Limits", "Policy"),
    "reasons.explain": ("dry_run", "explain"),
    "reasons.reason": ("Reason",),
    "state": ("State",),
    "tenancy.tenants": ("Tenants",),
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
