"""kill -9 loses nothing that was acknowledged, and gives no host away twice."""

from __future__ import annotations

from pathlib import Path

from tests.drills.crash import drill


def test_ten_kills(tmp_path: Path) -> None:
    """A small part of `make drill-crash`, which asserts what must hold."""
    found = drill(tmp_path, kills=10, seed=20_240_607)
    answered, events = found["answered"], found["events"]
    assert isinstance(answered, dict)
    assert isinstance(events, dict)
    assert answered["submit"] > 10
    assert answered["fail"] > 0
    assert events["JobStarted"] > 5
