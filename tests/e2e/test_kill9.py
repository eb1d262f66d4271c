"""kill -9 loses nothing that was acknowledged, and gives no host away twice."""

from pathlib import Path

from drills.crash import CrashDrill, run
from tests.e2e.processes import ServerProcess


def test_two_kills(tmp_path: Path) -> None:
    """A small part of `make drill-crash`, which asserts what must hold."""
    found = run(CrashDrill(ServerProcess(tmp_path), 20_240_607), kills=2, seed=20_240_607)
    answered, events = found["answered"], found["events"]
    assert isinstance(answered, dict)
    assert isinstance(events, dict)
    assert answered["submit"] > 2
    # Which of these are drawn is the seed's; how many get done before each kill is not.
    assert any(answered.get(what) for what in ("fail", "cordon", "drain"))
    assert events["JobStarted"] > 2
