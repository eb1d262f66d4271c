"""kill -9 loses nothing that was acknowledged, and gives no host away twice."""

from pathlib import Path

from drills.crash import CrashDrill, run
from tests.e2e.processes import ServerProcess, muster


def test_four_kills(tmp_path: Path) -> None:
    """A small part of `make drill-crash`, which asserts what must hold."""
    found = run(CrashDrill(ServerProcess(tmp_path), 20_240_607), kills=4, seed=20_240_607)
    answered, events = found["answered"], found["events"]
    assert isinstance(answered, dict)
    assert isinstance(events, dict)
    assert answered["submit"] > 5
    # Which of these are drawn is the seed's; how many get done before each kill is not.
    assert any(answered.get(what) for what in ("fail", "cordon", "drain"))
    assert events["JobStarted"] > 5


def test_a_killed_server_does_not_begin_anew_where_its_store_or_wal_was(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    job = tmp_path / "job.yaml"
    job.write_text("{name: a, parallelism: {tp: 8, dp: 2}, traffic: {dp: 10}}")
    done = muster("submit", str(job), address=server.address)
    assert done.returncode == 0, done.stderr
    server.kill()
    wal = server.store.with_name("muster.db-wal")
    kept = wal.read_bytes()
    serve = ("serve", "--store", server.url, "--listen", server.address)
    wal.unlink()
    done = muster(*serve)
    assert done.returncode == 2
    assert "acknowledged changes are missing" in done.stderr
    wal.write_bytes(kept)
    server.store.rename(tmp_path / "elsewhere.db")
    done = muster(*serve)
    assert done.returncode == 2
    assert "restore a backup, or begin an empty one with --init" in done.stderr
    (tmp_path / "elsewhere.db").rename(server.store)
    server.start()
    assert server.end() == 0
