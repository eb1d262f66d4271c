"""Small trace files, and what their readers make of them."""

from pathlib import Path

from simulator.traces.load import TraceFile, find_format
from simulator.traces.record import BadRecord, TraceJob


def read_text(
    tmp_path: Path, trace_format: str, text: str, columns: str | None = None
) -> tuple[list[TraceJob], list[str]]:
    """The jobs of a file with this content, and what is told of the other records:
    `LINE: FIELD: MESSAGE`, with `left out` before those that are right."""
    path = tmp_path / "trace"
    path.write_bytes(text.encode())
    told: list[str] = []

    def on_bad(_: Path, bad: BadRecord) -> None:
        told.append(f"{'' if bad.is_fault else 'left out '}{bad.line}: {bad.field}: {bad.detail}")

    return list(TraceFile(path, find_format(trace_format, columns), on_bad)), told
