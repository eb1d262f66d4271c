"""Names of jobs, tenants and windows: which ones there may be, and the full names of jobs.

Each tenant has its own names of jobs: two tenants may each have a job `train`. In the state, the
log and sentences a job is known by one text, its full name: `TENANT/NAME` where a
tenant was stated when it was submitted, else `NAME` alone, which is of the default tenant. A
full name stays while its job lives, whatever becomes of the tenants file; `NAME` alone becomes
`TENANT/NAME` once callers say who they are (tenancy/qualified_names.py).
"""

from __future__ import annotations

import re
from typing import Final

DEFAULT_TENANT: Final = "default"
HIDDEN: Final = "(hidden)"  # stands for a job of somebody else; none can have this name


def full_name(tenant: str, name: str) -> str:
    """Return the full name of a job. `tenant`: as stated, "" where none was."""
    return f"{tenant}/{name}" if tenant else name


def short_name(full: str) -> str:
    """Return the job's name within its tenant."""
    return full.rpartition("/")[2]


def stated_tenant(full: str) -> str:
    """Return the tenant in a full name; "" where none was stated."""
    return full.rpartition("/")[0]


NAME_RULE = "must be 1 to 128 letters, digits, '-', '_' or '.', and start and end plain"
NAME_PATTERN: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"
_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Return whether this is a valid name: 1 to 128 letters, digits, '-', '_' or '.', that begins
    and ends with a letter or digit."""
    return _NAME.fullmatch(text) is not None
