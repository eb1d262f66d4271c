"""The links file: what the uplinks of domains carry now.

    z3: 0.875        # a share of what it was built for
    z4: 14/16        # the same, as cables
    z5-r012: down
    z6: up

Domains that are left out are up.
"""

from __future__ import annotations

from typing import Any

from muster.structs import struct
from placement import BadInput
from placement.fabric.links import FULL, checked_share, uplink_of
from placement.fabric.tree import Fabric
from scheduler.files.errors import short
from scheduler.files.yaml12 import load

WORDS = {"up": FULL, "down": 0.0}


@struct(frozen=True, slots=True)
class LinkEntry:
    """One uplink of a links file, with the line that names it; `detail` is in words."""

    domain: str
    share: float
    line: int = 0
    detail: str = ""


def load_links(path: str, fabric: Fabric) -> list[LinkEntry]:
    """Read a file of uplinks. Raises: InputError with every fault found, each with its line."""
    document = load(path)
    if document.value is None:
        return []  # all are up, and the comments say why
    links, wrong = [], []
    for name, value in document.mapping().items():
        try:
            uplink_of(fabric, name, name)
            links.append(LinkEntry(name, parse_share(value, name), document.lines.get(name, 0)))
        except BadInput as error:
            wrong.append((error.field, error.message))
    if wrong:
        raise document.error(*wrong)
    return links


def parse_share(value: Any, field: str) -> float:
    """Parse `up`, `down`, 0.875, `87.5%` or `14/16`. Raises: BadInput naming `field`."""
    if isinstance(value, str):
        if value in WORDS:
            return WORDS[value]
        up, slash, of = value.partition("/")
        if slash and up.isdecimal() and of.isdecimal() and int(of):
            if int(up) > int(of):
                raise BadInput(field, f"{value}: more cables are up than there are")
            return checked_share(int(up) / int(of), field)
        try:
            number = float(value.removesuffix("%"))
            return checked_share(number / 100 if value.endswith("%") else number, field)
        except ValueError as error:
            if isinstance(error, BadInput):
                raise
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return checked_share(value, field)
    raise BadInput(
        field,
        f"must be up, down, a share as 0.875 or 87.5%, or cables as 14/16, not {short(value)}",
    )
