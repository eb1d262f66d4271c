"""One record a line, for people or for programs, on stderr.

Records carry facts beside their sentence: `version`, `job`, `host` or `window`, `actor`, `method`,
`code`, `duration_ms`. Tokens, keys and the content of requests are never among them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

FACTS = ("version", "event", "job", "host", "window", "actor", "method", "code", "duration_ms")


class LogFormat(StrEnum):
    """How records are written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """Levels of log records, from which on they are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(form: LogFormat, level: LogLevel) -> None:
    """Set up logging of this process, once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form is LogFormat.JSON else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("grpc").setLevel(max(logging.WARNING, logging.root.level))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {name: vars(record)[name] for name in FACTS if name in vars(record)}


class _Text(logging.Formatter):
    """`2026-11-20T19:02:22.123Z INFO muster.log: submitted; version=7 job=a`"""

    def format(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{key}={_quoted(value)}" for key, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {_line(record.getMessage())}"
        line += f"; {facts}" if facts else ""
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """An object a line; a traceback is one of its strings."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and " " not in text else json.dumps(text)


def _line(text: str) -> str:
    """Escape foreign text, which must not begin a line of its own."""
    return text if text.isprintable() else json.dumps(text)[1:-1]
