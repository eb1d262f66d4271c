"""Whose copy of the code `muster submit --snapshot` takes."""

import os
import subprocess
from pathlib import Path

import pytest

from muster.structs import replace
from scheduler.cli.jobs.submit_options import with_snapshot
from scheduler.core.policies.job_terms import RunSpec
from scheduler.files.errors import InputError
from tests.build import spec

SOMEBODY, OTHER = 54_321, 12_345


def test_a_copy_that_somebody_else_has_put_there_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, copies = tmp_path / "code", tmp_path / "copies"
    code.mkdir()
    (code / "train.py").write_text("good")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", code, *words], check=True)
    made = replace(spec("a", 1), run=RunSpec(("python", "train.py"), workdir=str(code)))

    def place() -> Path:
        run = with_snapshot(made, copies).run
        return Path(run.workdir)

    first = place()
    assert (place(), (first / "train.py").read_text()) == (first, "good")
    first.chmod(0o755)
    (first / "train.py").unlink()
    (first / "train.py").write_text("evil")
    if os.geteuid() == 0:  # whose copies anybody takes
        os.chown(first, SOMEBODY, -1)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    second = place()
    assert (second.name, (second / "train.py").read_text()) == (f"{first.name}.{OTHER}", "good")
    copies.chmod(0o777)
    with pytest.raises(InputError, match=r"anybody can replace what is in .*: chmod \+t"):
        place()
