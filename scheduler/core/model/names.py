"""Which names jobs, tenants and windows may have."""

from __future__ import annotations

import re

NAME_RULE = "must be 1 to 128 letters, digits, '-', '_' or '.', and start and end plain"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


def is_name(text: str) -> bool:
    """1 to 128 letters, digits, '-', '_' or '.', plain at both ends."""
    return _NAME.fullmatch(text) is not None
