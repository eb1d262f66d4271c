"""When a tenants file first named a tenant, and when it last said something else of it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from scheduler.core.policies.tenants import Tenants


class TenantMark(Struct, frozen=True):
    """`create_ns`: when a file first named it. `update_ns`: when one last changed it."""

    create_ns: int
    update_ns: int


def marked(
    mark: Callable[[str], TenantMark], was: Tenants, now: Tenants, time_ns: int
) -> dict[str, TenantMark]:
    """Of all tenants of `now`, which holds from `time_ns` on. `mark`: of those of `was`."""
    marks = {}
    for tenant in now.tenants:
        before = was.by_name.get(tenant.name)
        if before is None:
            marks[tenant.name] = TenantMark(time_ns, time_ns)
            continue
        known = mark(tenant.name)
        is_same = before == tenant
        marks[tenant.name] = known if is_same else TenantMark(known.create_ns, time_ns)
    return marks
