"""Whose copy of the code `muster submit --snapshot` takes."""

import os
import subprocess
from pathlib import Path

import pytest

from muster.structs import replace
from scheduler.cli.jobs.submit_options import with_snapshot
from scheduler.core import JobSpec
from scheduler.core.policies.job_terms import RunSpec
from scheduler.files.errors import InputError
from tests.build import spec

SOMEBODY, OTHER = 54_321, 12_345


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A repository with a program."""
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "train.py").write_text("committed")
    (folder / ".gitignore").write_text("*.ckpt\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return folder


def runs_in(folder: Path) -> JobSpec:
    return replace(spec("a", 1), run=RunSpec(("python", "train.py"), workdir=str(folder)))


def test_the_code_that_is_submitted_is_copied_with_what_is_new_and_without_what_is_ignored(
    tmp_path: Path, code: Path
) -> None:
    program = code / "sub" / "train.py"
    program.write_text("submitted")
    (code / "sub" / "new.py").touch()
    (code / "large.ckpt").touch()
    copied = with_snapshot(runs_in(code / "sub"), tmp_path / "copies")
    program.write_text("edited since")
    (copy,) = (tmp_path / "copies").iterdir()
    assert copied.run.workdir == str(copy / "sub")
    assert dict(copied.labels)["snapshot/tree"] == copy.name
    assert (copy / "sub" / "train.py").read_text() == "submitted"
    names = {str(path.relative_to(copy)) for path in copy.rglob("*")}
    assert names == {".gitignore", "sub", "sub/train.py", "sub/new.py"}


def test_a_copy_that_somebody_else_has_put_there_is_not_run(
    tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / "copies"

    def place() -> Path:
        run = with_snapshot(runs_in(code), copies).run
        return Path(run.workdir)

    first = place()
    program = first / "sub" / "train.py"
    assert (place(), program.read_text()) == (first, "committed")
    program.parent.chmod(0o755)
    program.unlink()
    program.write_text("evil")
    if os.geteuid() == 0:  # whose copies anybody takes
        os.chown(first, SOMEBODY, -1)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    second = place()
    assert second.name == f"{first.name}.{OTHER}"
    assert (second / "sub" / "train.py").read_text() == "committed"
    copies.chmod(0o777)
    with pytest.raises(InputError, match=r"anybody can replace what is in .*: chmod \+t"):
        place()
