"""Writes a fabric file as people write it: one line a tier, one line a domain of hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


def dump(spec: Mapping[str, Any]) -> str:
    """Return the YAML text of a fabric's content."""
    nested = ("tiers", "domains", "labels")
    lines = [f"{key}: {_scalar(spec[key])}" for key in spec if key not in nested]
    lines += ["tiers:", *(f"  - {_flow(tier)}" for tier in spec["tiers"])]
    if "domains" in spec:
        listed = spec["domains"]
        is_counted = isinstance(listed, Mapping)
        lines += [f"domains: {_flow(listed)}"] if is_counted else ["domains:"]
        lines += [] if is_counted else _domains(listed, "  ")
    if spec.get("labels"):
        lines += ["labels:"]
        lines += [f"  {_scalar(name)}: {_flow(labels)}" for name, labels in spec["labels"].items()]
    return "\n".join(lines) + "\n"


def _domains(domains: Sequence[Mapping[str, Any]], indent: str) -> Iterator[str]:
    for domain in domains:
        if not isinstance(domain.get("domains"), list):
            yield f"{indent}- {_flow(domain)}"
            continue
        mark = "- "
        for key, value in domain.items():
            if key != "domains":
                yield f"{indent}{mark}{key}: {_flow(value)}"
                mark = "  "
        yield f"{indent}  domains:"
        yield from _domains(domain["domains"], f"{indent}    ")


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_scalar(key)}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow(item) for item in value)}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """Texts are quoted unless nothing could read them as anything else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
