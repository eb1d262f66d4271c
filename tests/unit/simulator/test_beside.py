"""A replay whose report a second process writes: when that goes wrong, and when the replay does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

from placement.fabric.tree import from_spec
from scheduler.core.model.events import FabricLoaded, HostMoved
from scheduler.core.model.lifecycle import HostMove
from scheduler.files.errors import InputError
from simulator import terminal
from simulator.accounts import EMPTY
from simulator.beside import MESSAGE, Beside
from simulator.case import Case, run_case
from simulator.conserved import NotConserved
from simulator.report import Place, Report
from simulator.study import pool

SPEC = {"name": "m", "gpus_per_host": 2, "tiers": [{"name": "host", "count": 4}]}
ROW = "{} {} -1 {} {} -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"


def failing(time_ns: int) -> HostMoved:
    return HostMoved(time_ns, "h0", HostMove.FAIL)


def tell(folder: Path, then: Callable[[Beside], object]) -> None:
    """The fabric and a failure, and `then` something else."""
    with Beside(from_spec(SPEC), Place(folder), has_story=True) as told:
        told.feed(FabricLoaded(0, SPEC))
        told.feed(failing(5))
        then(told)


def test_what_was_said_is_told_when_the_replay_fails(tmp_path: Path) -> None:
    def fail(_: Beside) -> None:
        raise KeyError("of the replay")

    with pytest.raises(KeyError, match="of the replay"):
        tell(tmp_path, fail)

    assert (tmp_path / "events.jsonl").read_text().count("\n") == 2
    assert (tmp_path / "events.csv").read_text().count("\n") == 3
    assert not active_children()


def test_a_folder_that_cannot_be_written_is_refused_as_ever(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "t.swf").write_text(ROW.format(1, 0, 60, 2))
    case = Case(tmp_path / "t.swf", "swf", from_spec(SPEC))
    said = []
    for is_beside in (False, True):
        with pytest.raises(InputError) as refused:
            run_case(case, Report(tmp_path / "file", has_pages=False), is_beside=is_beside)
        said.append(str(refused.value))

    assert "--report" in said[0]
    assert said[0] == said[1]
    assert not active_children()


def test_a_full_disk_there_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "events.csv").symlink_to("/dev/full")

    def go_on(told: Beside) -> None:
        for time_ns in range(6, 100 * MESSAGE):
            told.feed(failing(time_ns))

    with pytest.raises(OSError, match="No space left on device"):
        tell(tmp_path, go_on)

    assert not active_children()


def test_what_goes_wrong_there_is_raised_at_the_next_message(tmp_path: Path) -> None:
    """A host that the fabric does not have."""

    def go_on(told: Beside) -> None:
        told.feed(HostMoved(6, "nowhere", HostMove.FAIL))
        for time_ns in range(7, 100 * MESSAGE):
            told.feed(failing(time_ns))

    with pytest.raises(KeyError, match="nowhere"):
        tell(tmp_path, go_on)

    assert not active_children()


def test_a_story_that_does_not_add_up_is_void_there_too(tmp_path: Path) -> None:
    with pytest.raises(NotConserved):
        tell(tmp_path, lambda told: told.story(replace(EMPTY, productive=7)))


def test_one_that_is_killed_is_an_error_that_says_so(tmp_path: Path) -> None:
    def kill(told: Beside) -> None:
        assert told.digest()
        (process,) = active_children()
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        told.digest()

    with pytest.raises(InputError, match="ended from outside"):
        tell(tmp_path, kill)


def test_ctrl_c_is_for_the_replay_alone(tmp_path: Path) -> None:
    def interrupt(told: Beside) -> None:
        (process,) = active_children()
        os.kill(process.pid or 0, signal.SIGINT)
        assert told.digest()
        os.kill(process.pid or 0, signal.SIGINT)
        told.feed(failing(6))
        assert set(told.grown()) == {"events.jsonl", "events.csv", "jobs.csv"}

    tell(tmp_path, interrupt)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("cores", "rows", "is_beside"), [(2, 9, 0), (1, 3_000, 0), (2, 3_000, 1)])
def test_a_long_trace_on_two_cores_is_told_by_a_second_process(
    cores: int, rows: int, is_beside: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[bool]()

    def run(*_: object, is_beside: bool, **__: object) -> dict[str, object]:
        given.append(is_beside)
        return {}

    monkeypatch.setattr("simulator.case.run_case", run)
    monkeypatch.setattr("scheduler.interpreter.expect_no_cycles", lambda: None)
    monkeypatch.setattr(pool, "cores", lambda: cores)
    (tmp_path / "t.swf").write_text("".join(ROW.format(i, i, 60, 2) for i in range(rows)))
    case = Case(tmp_path / "t.swf", "swf", from_spec(SPEC))
    terminal.run(terminal.Order(case, record=None, folder=tmp_path / "r"))  # type: ignore[arg-type]

    assert given == [bool(is_beside)]
