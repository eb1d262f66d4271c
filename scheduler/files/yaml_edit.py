"""Change single values of a YAML text; comments, order and style of all the rest stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

_PLAIN = re.compile(r"[\w./~-]+(:[\w./~-]+)*", re.ASCII)


def with_value(text: str, path: Sequence[str], value: str) -> str:
    """The text of a mapping whose value at `path` is `value`; mappings on the way are made.
    Raises: yaml.YAMLError where the text is none, ValueError where no mapping is on the way."""
    node = yaml.compose(text)
    if node is None:
        return f"{_line_end(text)}{_dumped(path, value)}\n"
    for at, key in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise ValueError(f"{'.'.join(path[:at])} is not a mapping")
        below = next((each for name, each in node.value if name.value == key), None)
        if below is None:
            return _with_entry(text, node, _dumped(path[at:], value))
        if below.tag == "tag:yaml.org,2002:null" and at + 1 < len(path):
            start = below.start_mark.index
            new = f" {{{_dumped(path[at + 1 :], value)}}}"
            return text[:start] + new + text[below.end_mark.index :]
        node = below
    start, end = node.start_mark.index, node.end_mark.index
    return f"{text[:start]}{' ' * (start == end)}{_scalar(value)}{text[end:]}"


def _dumped(path: Sequence[str], value: str) -> str:
    """`key: value`, on one line."""
    *above, key = path
    inner = f"{_scalar(key)}: {_scalar(value)}"
    for name in reversed(above):
        inner = f"{_scalar(name)}: {{{inner}}}"
    return inner


def _scalar(value: str) -> str:
    """In quotes, unless it means itself without them, in braces too."""
    if _PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return str(yaml.safe_dump(value, default_style='"', width=2**31)).removesuffix("\n")


def _with_entry(text: str, node: yaml.MappingNode, entry: str) -> str:
    """The text with one entry more in this mapping."""
    if node.flow_style:
        end = node.end_mark.index - 1
        comma = ", " if node.value else ""
        return f"{text[:end].rstrip()}{comma}{entry}{text[end:]}"
    last: Any = node
    while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
        last = last.value[-1]
        last = last[1] if isinstance(last, tuple) else last
    end = text.find("\n", max(last.end_mark.index - 1, last.start_mark.index))
    end = len(text) if end < 0 else end
    indent = " " * node.start_mark.column
    return f"{text[:end]}\n{indent}{entry}{text[end:]}"


def _line_end(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
