"""What `submit` says beside the job file: `--name` and `--array`, what keeps a job from being
considered for now, `--hold`, `--begin`, `--dependency`, and the code that it runs, `--snapshot`."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from muster.structs import replace
from placement import BadInput
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.job_array import parse_array
from scheduler.core.names import NAME_RULE, is_name
from scheduler.files.errors import InputError, Problem
from scheduler.files.job_keys import parse_dependencies, resume_run
from scheduler.files.timeparse import parse_moment

if TYPE_CHECKING:
    from scheduler.core import JobSpec

COMMIT, TREE = "snapshot/commit", "snapshot/tree"  # labels of a job that runs in a snapshot


def with_options(
    spec: JobSpec, name: str, begin: str, dependency: str, array: str, *, hold: bool
) -> JobSpec:
    """Return the specification `spec` with what the options say; without an option, the job file
    holds."""
    if name:
        if not is_name(name):
            raise typer.BadParameter(f"{NAME_RULE}, not {name!r}", param_hint="--name")
        spec = replace(spec, name=name)
    if begin:
        spec = replace(spec, begin_ns=begin_ns(begin))
    if dependency:
        spec = replace(spec, dependencies=dependencies(dependency))
    if array:
        try:
            spec = replace(spec, array=parse_array(array))
        except BadInput as error:
            raise typer.BadParameter(error.message, param_hint="--array") from None
    return replace(spec, hold=spec.hold or hold)


def with_run(spec: JobSpec, resume_from: str, *, new_run: bool) -> JobSpec:
    """Return `spec` with what the options say of the run that it continues."""
    if not (resume_from or new_run):
        return spec
    option = "--resume-from" if resume_from else "--new-run"
    if resume_from and new_run:
        raise typer.BadParameter("conflicts with --resume-from", param_hint="--new-run")
    if spec.run is None:
        raise typer.BadParameter("is for a job whose file has `run`", param_hint=option)
    try:
        checked = resume_run(resume_from) if resume_from else ""
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint=option) from None
    return replace(spec, run=replace(spec.run, new_run=new_run, resume_from=checked))


def begin_ns(text: str) -> int:
    """Parse a begin time into ns. Raises: typer.BadParameter."""
    try:
        return parse_moment(text, time.time_ns()) // 10**9 * 10**9
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint="--begin") from None


def dependencies(text: str) -> tuple[DependencyTerm, ...]:
    """Parse dependencies. Raises: typer.BadParameter."""
    try:
        terms = parse_dependencies(text)
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint="--dependency") from None
    return tuple(
        DependencyTerm(DependencyKind(term["kind"]), term.get("job", "")) for term in terms
    )


def with_snapshot(spec: JobSpec, folder: Path) -> JobSpec:
    """Return the job with a copy of its working directory as that is now, in `folder`.

    The copy has what git tracks, with changes that are not committed, and new files that it does
    not ignore. It is called after its content, so that equal ones are one, and nobody may write to
    it. Raises: InputError.
    """
    if spec.run is None:
        raise InputError(Problem("--snapshot", "is for a job whose file has `run`"))
    workdir = os.path.realpath(spec.run.workdir or os.getcwd())
    if not os.path.isdir(workdir):
        raise InputError(Problem("run.workdir", f"there is no directory {workdir} here"))
    top = _git(workdir, "rev-parse", "--show-toplevel")
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": f"{scratch}/index"}
        commit = _git(top, "rev-parse", "HEAD")
        _git(top, "read-tree", commit, **index)
        _git(top, "add", "--all", **index)
        tree = _git(top, "write-tree", **index)
        folder.mkdir(parents=True, exist_ok=True)
        target = _place(folder.resolve(), tree)
        if not target.exists():
            copy = Path(tempfile.mkdtemp(dir=folder))
            _git(top, "checkout-index", "--all", f"--prefix={copy}/", **index)
            _protect(copy)
            try:
                copy.rename(target)
            except OSError:  # another submit has just made the same
                shutil.rmtree(copy, ignore_errors=True)
                if _place(folder.resolve(), tree) != target:
                    message = f"{target} has just been made by another user: submit again"
                    raise InputError(Problem("--snapshot", message)) from None
    inside = os.path.relpath(workdir, top)
    labels = dict(spec.labels) | {COMMIT: commit, TREE: tree}
    run = replace(spec.run, workdir=str(target / inside))
    return replace(spec, run=run, labels=tuple(sorted(labels.items())))


def _place(folder: Path, tree: str) -> Path:
    """Return where the copy is, or will be. One of somebody else is not taken, for who made it can
    have put other code into it, and could do so later. Raises: InputError."""
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        message = f"anybody can replace what is in {folder}: chmod +t"
        raise InputError(Problem("--snapshot", message))
    for name in (tree, f"{tree}.{os.geteuid()}"):
        place = folder / name
        if not os.path.lexists(place) or place.lstat().st_uid in (0, os.geteuid()):
            return place
    raise InputError(Problem("--snapshot", f"{place} is of another user: choose another folder"))


def _git(folder: str, *arguments: str, **environment: str) -> str:
    """Raises: InputError with git's own words."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise InputError(Problem("--snapshot", "needs git, which is not here")) from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"git {arguments[0]} failed"]
        raise InputError(Problem("--snapshot", f"{folder}: {words[-1]}"))
    return done.stdout.strip()


def _protect(folder: Path) -> None:
    """Let everybody read it, and nobody change it."""
    for path, _, files in os.walk(folder):
        for name in files:
            file = os.path.join(path, name)
            if not os.path.islink(file):
                os.chmod(file, 0o555 if os.access(file, os.X_OK) else 0o444)
        os.chmod(path, 0o555)
