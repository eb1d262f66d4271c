"""Names of jobs in messages: resource names `tenants/TENANT/jobs/NAME` (AIP-122).

A request may also say `TENANT/NAME`, or `NAME` alone for a job of the caller's own tenant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from placement import BadInput
from scheduler.core.names import HIDDEN, short_name, stated_tenant

if TYPE_CHECKING:
    from scheduler.core import Job, Tenants

FORMS: Final = "NAME, TENANT/NAME or tenants/TENANT/jobs/NAME"
_RESOURCE = re.compile(r"tenants/([^/]+)/jobs/([^/]+)")


def resource_name(tenant: str, name: str) -> str:
    """Return the resource name of a job. `name`: short or full."""
    return f"tenants/{tenant}/jobs/{short_name(name)}"


def job_resource(job: Job) -> str:
    """Return the resource name of a job; "" where its reader may not know the name."""
    return HIDDEN if job.name == HIDDEN else resource_name(job.tenant, job.name)


def resource_of(tenants: Tenants, full: str) -> str:
    """Return the resource name of the job that the state knows by this name."""
    return resource_name(stated_tenant(full) or tenants.default, full)


def resources(tenants: Tenants, names: Iterable[str]) -> list[str]:
    return [resource_of(tenants, full) for full in names]


def parse_job_name(text: str, field: str = "name") -> tuple[str, str]:
    """Split a name into tenant and short name; the tenant is "" where none is named. Raises:
    BadInput."""
    if match := _RESOURCE.fullmatch(text):
        return match[1], match[2]
    tenant, slash, name = text.rpartition("/")
    if "/" in tenant or (slash and not (tenant and name)):
        raise BadInput(field, f"must be {FORMS}, not {text!r}")
    return tenant, name
