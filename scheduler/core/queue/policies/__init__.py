"""Ways to serve the queue, one a file, and the registry of all there are.

Inside: fifo, easy, conservative and production, which come with muster. A package adds its
own with an entry point of the group `muster.policies`, whose name is the policy's and whose
value is a QueuePolicy (docs/extending.md).
Enters: a name. Leaves: the QueuePolicy of that name.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from placement import BadInput
from scheduler.core.queue.policies.conservative import CONSERVATIVE
from scheduler.core.queue.policies.easy import EASY, Easy
from scheduler.core.queue.policies.fifo import FIFO, Fifo
from scheduler.core.queue.policies.production import PRODUCTION
from scheduler.core.queue.policy import QueuePolicy

GROUP = "muster.policies"
BUILT_IN = {policy.name: policy for policy in (PRODUCTION, EASY, FIFO, CONSERVATIVE)}


def policy_names() -> tuple[str, ...]:
    """All policies by name, muster's own first."""
    return (*BUILT_IN, *(name for name in sorted(_installed()) if name not in BUILT_IN))


def queue_policy(name: str) -> QueuePolicy:
    """The policy of this name. Raises: BadInput, field `policy`, that lists the known ones,
    or that says what is wrong with the package that has it."""
    return BUILT_IN[name] if name in BUILT_IN else _plugged(name)


def reserves_by_size(policy: QueuePolicy) -> bool:
    """Whether a policy has one reservation, made anew by each decision, and size and time limit
    say who may start beside it."""
    return policy.backfill in (Easy, Fifo)


@cache
def _installed() -> dict[str, EntryPoint]:
    """Entry points by name, read once: packages are not installed while a process runs."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@cache
def _plugged(name: str) -> QueuePolicy:
    entry = _installed().get(name)
    if entry is None:
        raise BadInput("policy", f"must be one of {', '.join(policy_names())}, not {name!r}")
    try:
        policy = entry.load()
    except Exception as error:  # whatever a package of somebody else's may raise
        raise BadInput("policy", f"{name}: {entry.value} cannot be loaded: {error}") from error
    if not isinstance(policy, QueuePolicy):
        raise BadInput("policy", f"{name}: {entry.value} is not a QueuePolicy")
    if policy.name != name:
        raise BadInput("policy", f"{name}: the policy of {entry.value} is called {policy.name}")
    return policy
