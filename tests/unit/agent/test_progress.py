"""muster.progress: what ranks say, what they resume from, and what stale ranks may not save."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster import progress
from muster.progress import Checkpoint, StaleAttempt


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


Be = Callable[..., None]


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch) -> Be:
    """be(attempt, uid="uid", CHECKPOINT="/c"): this process is a rank of it from now on."""

    def become(attempt: int, uid: str = "uid", **variables: object) -> None:
        for name, value in {"ATTEMPT": attempt, "JOB_UID": uid, **variables}.items():
            monkeypatch.setenv(f"MUSTER_{name}", str(value))

    return become


def save(root: Path, step: int) -> Path:
    with progress.saving(root, step) as folder:
        (folder / "state").write_text(str(step))
    return folder.with_suffix("")


def test_a_checkpoint_has_its_name_once_it_is_complete(be: Be, root: Path) -> None:
    be(1)
    with progress.saving(root, 20) as folder:
        assert folder == progress.partial_folder(root, 20)
        assert progress.resume() is None
    assert (folder.with_suffix("")).is_dir()
    assert not folder.exists()
    be(2)  # which never writes in the same place
    assert progress.partial_folder(root, 20).parent != folder.parent
    with pytest.raises(OSError, match="full"), progress.saving(root, 40):
        raise OSError("full")
    assert progress.resume(root) == Checkpoint(20, folder.with_suffix(""))


def test_the_next_attempt_resumes_from_the_newest_or_as_muster_says(be: Be, root: Path) -> None:
    be(1)
    assert progress.resume(root) is None
    save(root, 20)
    path = save(root, 40)
    be(2)
    assert progress.resume(root) == Checkpoint(40, path)
    be(2, "another")
    assert progress.resume(root) is None
    be(2, CHECKPOINT="/c/step-7", CHECKPOINT_STEP=7)
    assert progress.resume(root) == Checkpoint(7, Path("/c/step-7"))


def test_the_next_job_of_a_run_goes_on_and_its_predecessor_saves_none(be: Be, root: Path) -> None:
    be(3, "before")
    path = save(root, 20)
    be(1, "next", PREDECESSOR="before", CHECKPOINT=path, CHECKPOINT_STEP=20)
    assert progress.resume(root) == Checkpoint(20, path)
    save(root, 30)
    be(1, "next", CHECKPOINT=root / "gone")
    with pytest.raises(FileNotFoundError, match="--new-run"):
        progress.resume(root)
    be(3, "before")
    with pytest.raises(StaleAttempt, match="a later job has started"):
        save(root, 40)


def said(folder: Path, rank: int = 0) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / f"progress.{rank}").read_text())
    return loaded


@pytest.fixture
def run_folder(monkeypatch: pytest.MonkeyPatch, be: Be, tmp_path: Path) -> Path:
    """Where a rank of a first attempt that has said nothing yet writes what it says."""
    be(1, RUN_DIR=tmp_path, SOCKET=tmp_path / "no.sock")
    monkeypatch.setattr(progress, "_said", {})
    return tmp_path


def test_a_checkpoint_of_a_framework_is_reported_once_its_marker_is_there(
    be: Be, root: Path, run_folder: Path
) -> None:
    folder = root / "iter_0000500"
    folder.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"iter_0000500/\.metadata"):
        progress.saved(500, folder, marker=".metadata")
    (folder / ".metadata").touch()
    progress.report(510)
    progress.saved(500, folder, marker=".metadata")
    told = said(run_folder)
    assert (told["step"], told["checkpoint_step"]) == (510, 500)
    assert told["checkpoint"] == str(folder)
    (root / "step-520.ckpt").touch()  # of a framework that writes one file
    progress.saved(520, root / "step-520.ckpt")
    assert said(run_folder)["checkpoint"] == str(root / "step-520.ckpt")
    be(2)
    progress.resume(root)
    be(1)
    with pytest.raises(StaleAttempt):
        progress.saved(600, folder)


def test_a_shell_script_speaks_for_its_rank(
    monkeypatch: pytest.MonkeyPatch, root: Path, run_folder: Path
) -> None:
    root.mkdir()
    monkeypatch.setenv("RANK", "3")
    (run_folder / "progress.3").write_text('{"step": 7, "can_save": true, "stacks_pid": 1}')

    def run(*words: str) -> int:
        command = [sys.executable, "-m", "muster.progress", *words]
        return subprocess.run(command, capture_output=True).returncode

    assert run("saved", "5", str(root)) == 0
    told = said(run_folder, 3)
    assert (told["step"], told["checkpoint_step"], told["stacks_pid"]) == (7, 5, 1)
    assert (run("should-save"), run("saved", "5"), run("report", "x")) == (1, 2, 2)
    (run_folder / "save").touch()
    assert run("should-save") == 0


def test_a_rank_knows_how_long_it_has_to_save(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert progress.seconds_to_save() is None
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    assert progress.seconds_to_save() is None
    until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + 50
    (tmp_path / "save").write_text(f"{until_s:.3f}")
    left_s = progress.seconds_to_save()
    assert left_s is not None
    assert 49 < left_s < 50.001  # the deadline is written in whole milliseconds
    (tmp_path / "save").write_text("")
    assert (progress.should_save(), progress.seconds_to_save()) == (True, None)


def test_a_stale_rank_saves_nothing_once_its_successor_has_resumed(be: Be, root: Path) -> None:
    be(1)
    progress.resume(root)
    old = save(root, 20)
    be(2)
    progress.resume(root)
    be(1)
    with pytest.raises(StaleAttempt, match="attempt 2 of this job has started"):
        save(root, 40)
    with pytest.raises(StaleAttempt):
        progress.resume(root)
    assert sorted(path.name for path in old.parent.iterdir()) == [old.name]


def test_a_rank_that_slept_while_it_saved_publishes_nothing(be: Be, root: Path) -> None:
    be(1)
    folder = progress.partial_folder(root, 20)

    def sleep() -> None:
        be(2)
        progress.resume(root)
        be(1)

    with pytest.raises(StaleAttempt), progress.saving(root, 20):
        sleep()
    assert not folder.with_suffix("").exists()


def test_what_a_rank_says_is_one_file_that_is_always_whole(
    monkeypatch: pytest.MonkeyPatch, run_folder: Path, root: Path
) -> None:
    monkeypatch.setenv("RANK", "3")
    progress.report(5)
    path = save(root, 6)
    told = said(run_folder, 3)
    assert (told["step"], told["checkpoint_step"], told["checkpoint"]) == (6, 6, str(path))
    assert not progress.should_save()
    (run_folder / "save").touch()
    assert progress.should_save()
