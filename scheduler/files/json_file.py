"""JSON that other programs write: read fast, and with a line once something is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muster.structs import struct
from scheduler.files import yaml12
from scheduler.files.errors import InputError, line_of, refusal
from scheduler.files.yaml12 import MOST_PROGRAM_BYTES


@struct(frozen=True, slots=True)
class JsonFile:
    """The value of a file, and its text."""

    value: Any
    text: str
    source: str

    @staticmethod
    def load(path: str) -> JsonFile:
        """Raises: InputError with the line of what is no JSON."""
        text = yaml12.read_text(path, MOST_PROGRAM_BYTES)
        try:
            return JsonFile(json.loads(text), text, path)
        except json.JSONDecodeError as error:
            raise refusal(f"is not JSON: {error.msg}", path, error.lineno) from None
        except RecursionError:
            raise refusal("is nested too deep", path) from None

    def error(self, field: str, message: str) -> InputError:
        """JSON is YAML, whose reader knows lines: it reads the text again, now that it matters."""
        try:
            line = line_of(yaml12.parse(self.text).lines, field)
        except InputError:
            line = 0
        return refusal(message, self.source, line, field)

    def lines(self) -> Mapping[str, int]:
        """The line of every field; none where the YAML reader refuses the text."""
        try:
            return yaml12.parse(self.text).lines
        except InputError:
            return {}
