"""What an operator sets of access, as the server file has it. Light to import."""

from __future__ import annotations

from functools import cached_property

from scheduler.files.job_keys import Count, Keys, Number

_ENTRY_BYTES = 6  # of a map at least: tag and length of it, of its key and of its value


class CallLimits(Keys):
    """Bounds on requests; the section `limits` of a server file.

    Per request: `message_bytes` in all, `text_bytes` of one text, `list_entries` of one
    list; of a label map `label_count` entries with `label_bytes` in a key or a value.
    `waiting_jobs`: of one tenant. `streams`: open watches in all, `streams_per_caller`
    of one caller. `calls_per_s` of one caller, with as many at once; 0: any number.
    `questions`: dry runs, what-ifs and the like that wait or are under way in all,
    `questions_per_caller` of one caller. `log_passes`: places of the log that watches resume from
    at once, beyond what memory keeps; `log_passes_per_caller` of one caller.
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
    questions: Count = 64
    questions_per_caller: Count = 16
    log_passes: Count = 8
    log_passes_per_caller: Count = 4

    @cached_property
    def harmless_bytes(self) -> int:
        """Return a size of requests in which no field can be too long."""
        of_maps = min(self.label_bytes, self.label_count * _ENTRY_BYTES)
        return min(self.text_bytes, self.list_entries, of_maps)
