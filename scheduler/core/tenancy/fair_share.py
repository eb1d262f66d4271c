"""Fair share: which tenant is furthest below what it is due.

At each level of the tree siblings are compared: those that hold less than their
guarantee come first, then the one with the least usage for its weight. Usage is what
has been used, fading with time, plus what would be used if the present hosts were held
for ever; so a start moves its tenant back at once, and history counts as much as a
half-life of holding.
"""

from __future__ import annotations

from scheduler.core.model.state import State
from scheduler.core.model.tenant_usage import standing
from scheduler.core.tenancy.ownership import half_life_ns
from scheduler.core.tenancy.quota import QuotaBook

Key = tuple[tuple[bool, int, int], ...]
_SCALE = 1_000  # keeps weights apart when usage is small


class FairShares:
    """Usage by tenant, inner ones included. Mutable: starts are added as they are made."""

    def __init__(self, state: State, now_ns: int, book: QuotaBook) -> None:
        self._tenants = state.tenants
        self._half_life_ns = half_life_ns(state.tenants)
        self._book = book
        self._place = {tenant.name: i for i, tenant in enumerate(state.tenants.tenants)}
        self._path = {name: state.tenants.path(name) for name in self._place}
        self.used = dict.fromkeys(self._place, 0)
        for name, account in state.accounts.items():
            used = account.used_at(now_ns, self._half_life_ns)
            self._add(name, used + standing(account.held, self._half_life_ns))

    def took(self, leaf: str, hosts: int) -> None:
        """`leaf` starts something on that many hosts."""
        self._add(leaf, standing(hosts, self._half_life_ns))

    def _add(self, leaf: str, used: int) -> None:
        for name in self._path[leaf]:
            self.used[name] += used

    def key(self, leaf: str) -> Key:
        """Sorts tenants, the one to serve next first; equal ones as in the file."""
        return tuple(
            (
                not self._book.is_within_guarantee(name),
                self.used[name] * _SCALE // self._tenants.by_name[name].weight,
                self._place[name],
            )
            for name in self._path[leaf]
        )
