"""What an operator sets of access, as the server file has it. Light to import."""

from __future__ import annotations

from enum import StrEnum

from scheduler.jobkeys import Count, Keys, Number


class Reflection(StrEnum):
    """Who may ask the server for its methods and messages."""

    CALLERS = "callers"  # those whom the auth file knows
    ANYBODY = "anybody"
    NOBODY = "nobody"


class CallLimits(Keys):
    """Bounds on requests; the section `limits` of a server file.

    Per request: `message_bytes` in all, `text_bytes` of one text, `list_entries` of one
    list; of a label map `label_count` entries with `label_bytes` in a key or a value.
    `waiting_jobs`: of one tenant. `streams`: open watches in all, `streams_per_caller`
    of one caller. `calls_per_s` of one caller, with as many at once; 0: any number.
    """

    message_bytes: Count = 4 << 20
    text_bytes: Count = 4_096
    list_entries: Count = 1_000
    label_count: Count = 64
    label_bytes: Count = 1_024
    waiting_jobs: Count = 10_000
    streams: Count = 4_000
    streams_per_caller: Count = 500
    calls_per_s: Number = 0
