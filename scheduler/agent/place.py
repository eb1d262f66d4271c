"""Where a host is in the fabric, as its agent learns: pairs KEY=VALUE.

On the command line with commas between them; in a file one a line, with or without quotes around
the value, as Kubernetes writes the labels of a pod into one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from scheduler.files.errors import InputError, Problem, short
from scheduler.files.yaml12 import read_text

_PAIR = re.compile(r"""\s*([\w./-]+)\s*=\s*(?:"([^"]*)"|([^"\s,]*))\s*""")
_MOST_BYTES = 65_536


def parse_place(text: str, file: str) -> dict[str, str]:
    """Parse the place of a host in the fabric. `text`: zone=z0,rack=z0-r001; `file`: one with such
    lines, "" for none. What `text` says goes before. Raises: InputError."""
    lines = read_text(file, _MOST_BYTES).splitlines() if file else ()
    of_file = _pairs(lines, file)
    return {**of_file, **_pairs(text.split(",") if text else (), "")}


def _pairs(parts: Iterable[str], source: str) -> dict[str, str]:
    place = {}
    for line, part in enumerate(parts, 1):
        if not part.strip():
            continue
        match = _PAIR.fullmatch(part)
        if match is None:
            message = f"must be KEY=VALUE, as rack=z0-r001, not {short(part)}"
            raise InputError(
                Problem("" if source else "place", message, source, line * bool(source))
            )
        place[match[1]] = match[2] or match[3] or ""
    return {key: value for key, value in place.items() if value}
