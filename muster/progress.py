"""From a rank to muster: how far it is, where its checkpoints are, and what stale ranks may not do.

    from muster import progress

    start = progress.resume("/scratch/run7")            # (step, path) of a checkpoint, or None
    for step in range(start.step if start else 0, STEPS):
        train()
        progress.report(step + 1)
        if (step + 1) % 500 == 0 or progress.should_save():
            with progress.saving("/scratch/run7", step + 1) as folder:
                torch.save(state, folder / "rank0.pt")

With `checkpoint.peers` every rank may also keep a copy of its state in memory, which the agents of
its gang send to other hosts, and from which a restart goes on where it is newer:

    if copy := progress.copied():                        # (step, file) of this rank's own state
        load(copy.path)
    if step % 20 == 0:
        with progress.copying(step) as file:
            torch.save(state, file)

Every rank may say how long it computed (`computed`, `computing`), so that the slow ones are found,
and should say that it evaluates (`busy`): a gang that makes no step is taken to hang.
One rank, as a rule rank 0, resumes, reports and saves; others that write shards use
`partial_folder` between two barriers. Outside of muster, where MUSTER_RUN_DIR is not set,
nothing is reported, and checkpoints are written and found all the same.

Fencing. A rank that was given up, because its host was cut off or stood still, may wake up after
its successor has started. Two things keep it from doing harm. Every attempt writes below a folder
of its own, so that nothing that it writes is in the place of what another wrote. And `resume`
raises a fence in the shared folder first: from then on `saving` refuses in every earlier attempt,
before anything is written and again before what was written gets its name (StaleAttempt). What
slipped through between these two would still be a whole checkpoint, in the folder of the old
attempt, of which muster takes no report any more.

This file uses the standard library alone; it can be copied into an environment without muster.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Checkpoint",
    "StaleAttempt",
    "busy",
    "computed",
    "computing",
    "copied",
    "copying",
    "partial_folder",
    "report",
    "resume",
    "saved",
    "saving",
    "seconds_to_save",
    "should_copy",
    "should_save",
]

_STEP = re.compile(r"step-(\d{12})")
_FENCES = ".muster-fences"
_EVERY_ATTEMPT = 999_999  # the fence of a job that another one continues
_TIME = struct.Struct("=qd")  # a step, and the seconds that this rank computed in it
_LEVELS, _SLOTS = 16, 8


class StaleAttempt(RuntimeError):
    """A later attempt of this job has started: this rank must end, and must not save."""


class Checkpoint(NamedTuple):
    """A complete checkpoint."""

    step: int
    path: Path


_said: dict[str, object] = {}
_times: int | None = None  # file
_copied_s = time.monotonic()  # when this rank began to write its last copy, or to run
_stacks: int | None = None  # file
_STACKS_SIGNAL = signal.SIGRTMIN + 7


def resume(root: str | os.PathLike[str] | None = None) -> Checkpoint | None:
    """The checkpoint to go on from, None to begin anew: the newest that muster knows of, of this
    job or of one before it of the same run, else the newest of an earlier attempt of this job
    below `root`. With `root` earlier attempts, and the job before, can save no more from here on.
    Raises: StaleAttempt; FileNotFoundError where the checkpoint of an earlier job is gone."""
    if root is not None:
        _raise_fence(Path(root))
    _say(can_save=True)
    if where := os.environ.get("MUSTER_CHECKPOINT", ""):
        is_earlier = bool(os.environ.get("MUSTER_PREDECESSOR"))
        if is_earlier and where.startswith("/") and not os.path.exists(where):
            raise FileNotFoundError(
                f"an earlier job of this run saved {where}, which is not there: bring it back, or"
                " begin anew by `muster submit --new-run`"
            )
        return Checkpoint(int(os.environ.get("MUSTER_CHECKPOINT_STEP", "0")), Path(where))
    return _newest(Path(root)) if root is not None else None


def report(step: int, *, total: int = 0, loss: float | None = None) -> None:
    """Report that `step` steps are complete, of `total` in all, with this loss, where given:
    `muster job` shows the pace. Ranks that stop reporting are found (docs/launch.md)."""
    news: dict[str, object] = {"step": step}
    if total:
        news["total"] = total
    if loss is not None:
        news["loss"] = float(loss)
    _say(**news)


@contextlib.contextmanager
def busy(activity: str) -> Iterator[None]:
    """The block is no step, and takes as long as it takes: `with busy("evaluating")`."""
    _say(busy=activity[:60])
    try:
        yield
    finally:
        _say(busy="")


def computed(step: int, seconds: float) -> None:
    """This rank worked so long in a step, without the time in which it waited for others: every
    rank says so, and `muster stragglers` tells who is slow. Cost: 5 us.

    The agent looks now and then. Of level n the last eight steps are kept that 2^n divides, so that
    all agents find some of the same steps, however short these are."""
    global _times
    folder = os.environ.get("MUSTER_RUN_DIR")
    if folder is None:
        return
    with contextlib.suppress(OSError):
        if _times is None:
            path = os.path.join(folder, f"times.{_rank()}")
            _times = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        entry = _TIME.pack(step, seconds)
        for level in range(_LEVELS):
            slot = level * _SLOTS + (step >> level) % _SLOTS
            os.pwrite(_times, entry, slot * _TIME.size)
            if step >> level & 1:
                break


@contextlib.contextmanager
def computing(step: int) -> Iterator[None]:
    """`computed` for the block: what a rank does in a step before it waits for others. A GPU works
    on after the call that starts it: synchronise in the block, or give `computed` what CUDA events
    have measured."""
    since = time.perf_counter()
    yield
    computed(step, time.perf_counter() - since)


def should_save() -> bool:
    """Whether muster asks for a checkpoint: the gang is to leave its hosts, or its time limit is
    near. Hosts hear of it one after the other: let one rank ask and tell the others. Cost: 2 us."""
    folder = os.environ.get("MUSTER_RUN_DIR")
    return folder is not None and os.path.exists(os.path.join(folder, "save"))


def seconds_to_save() -> float | None:
    """How long there is for the checkpoint that `should_save` asks for; None: nothing is asked, or
    it is not known how long."""
    folder = os.environ.get("MUSTER_RUN_DIR")
    try:
        with open(os.path.join(folder or "", "save"), encoding="ascii") as file:
            until_s = float(file.read())
    except (OSError, ValueError):
        return None
    return max(0.0, until_s - time.clock_gettime(time.CLOCK_BOOTTIME))


def copied() -> Checkpoint | None:
    """This rank's own state in memory, from which all ranks of the attempt go on; None: there is
    none that is newer than what `resume` returns. Raises: FileNotFoundError where it is gone."""
    if not (attempt := os.environ.get("MUSTER_COPY_ATTEMPT")):
        return None
    step = int(os.environ["MUSTER_COPY_STEP"])
    for part in ("own", "kept"):
        path = _copy_folder() / part / _copy_name(int(attempt), step)
        if path.exists():
            return Checkpoint(step, path)
    raise FileNotFoundError(f"no copy of rank {_rank()} after step {step} is on this host")


def should_copy() -> bool:
    """Whether copies are kept in memory, and `checkpoint.peer_interval_s` has passed since this
    rank wrote one. Ranks have clocks of their own: let one ask and tell the others."""
    interval_s = os.environ.get("MUSTER_COPY_INTERVAL")
    return interval_s is not None and time.monotonic() - _copied_s >= float(interval_s)


@contextlib.contextmanager
def copying(step: int) -> Iterator[Path]:
    """A file in memory to write this rank's state after `step` into, which goes to other hosts
    when the block ends well. All ranks do this after the same step. Raises: RuntimeError where no
    copies are kept, ValueError where the file is too large."""
    global _copied_s
    _copied_s = time.monotonic()
    path = _copy_folder() / "own" / _copy_name(_attempt(), step)
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        size, most = partial.stat().st_size, int(os.environ["MUSTER_COPY_BYTES"])
        if size > most:
            raise ValueError(f"the copy of rank {_rank()} has {size} bytes; {most} may be kept")
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def _copy_folder() -> Path:
    if not (folder := os.environ.get("MUSTER_COPIES")):
        raise RuntimeError("no copies are kept in memory: the job needs checkpoint.peers")
    return Path(folder)


def _copy_name(attempt: int, step: int) -> str:
    return f"rank-{_rank()}.attempt-{attempt}.step-{step}"


def saved(step: int, path: str | os.PathLike[str], *, marker: str = "") -> None:
    """A checkpoint that a framework wrote by itself is complete: the next attempt begins there, at
    MUSTER_CHECKPOINT. After an asynchronous save, call it when that has ended. `marker`: a file
    below `path` that the framework writes last. Raises: FileNotFoundError where the checkpoint or
    its marker is not there, StaleAttempt."""
    where = os.path.abspath(path)
    last = os.path.join(where, marker) if marker else where
    if not os.path.exists(last):
        raise FileNotFoundError(f"no checkpoint is complete at {last}")
    _check_fence(Path(where).parent)
    _say(step=max(step, _reported()), checkpoint_step=step, checkpoint=where)


def _reported() -> int:
    step = _said.get("step", 0)
    return step if isinstance(step, int) else 0


def partial_folder(root: str | os.PathLike[str], step: int) -> Path:
    """Where all ranks write the checkpoint of this step, while rank 0 is `saving` it."""
    return _own_folder(Path(root)) / f"step-{step:012d}.partial"


@contextlib.contextmanager
def saving(root: str | os.PathLike[str], step: int) -> Iterator[Path]:
    """A folder to write a checkpoint into, which gets its name and is reported when the block
    ends well. Raises: StaleAttempt, before or after the block: then there is no checkpoint."""
    _check_fence(Path(root))
    partial = partial_folder(root, step)
    partial.mkdir(parents=True, exist_ok=True)
    with busy("saving"):
        yield partial
    _check_fence(Path(root))
    path = partial.with_suffix("")
    _sync(partial)
    os.rename(partial, path)
    _sync(path.parent)
    _check_fence(Path(root))
    _say(step=step, checkpoint_step=step, checkpoint=str(path))


def _attempt() -> int:
    return int(os.environ.get("MUSTER_ATTEMPT", "1"))


def _job() -> str:
    return os.environ.get("MUSTER_JOB_UID", "local")


def _own_folder(root: Path) -> Path:
    return root / f"{_job()}.attempt-{_attempt():06d}"


def _raise_fence(root: Path) -> None:
    """An empty file for each attempt: made at once or not at all, on any file system."""
    _touch_fence(root, _job(), _attempt())
    if before := os.environ.get("MUSTER_PREDECESSOR"):
        _touch_fence(root, before, _EVERY_ATTEMPT)
    _check_fence(root)


def _touch_fence(root: Path, job: str, attempt: int) -> None:
    fences = root / _FENCES / job
    fences.mkdir(parents=True, exist_ok=True)
    (fences / f"{attempt:06d}").touch()


def _check_fence(root: Path) -> None:
    try:
        newest = max(int(name) for name in os.listdir(root / _FENCES / _job()))
    except (FileNotFoundError, ValueError):
        return
    if newest > _attempt():
        later = "a later job" if newest == _EVERY_ATTEMPT else f"attempt {newest} of this job"
        raise StaleAttempt(f"{later} has started; this is attempt {_attempt()}")


def _newest(root: Path) -> Checkpoint | None:
    """The newest checkpoint of the latest attempt before this one, or this one, that has saved."""
    for folder in sorted(root.glob(f"{_job()}.attempt-*"), reverse=True):
        if int(folder.name.rpartition("-")[2]) > _attempt():
            continue
        steps = [int(m[1]) for path in folder.iterdir() if (m := _STEP.fullmatch(path.name))]
        if steps:
            return Checkpoint(max(steps), folder / f"step-{max(steps):012d}")
    return None


def _rank() -> int:
    """Return the number of this rank in the gang. RANK counts the ranks of its role."""
    return int(os.environ.get("MUSTER_FIRST_RANK", "0")) + int(os.environ.get("RANK", "0"))


def _say(**news: object) -> None:
    """Leave word for the agent, and tell it to look."""
    folder = os.environ.get("MUSTER_RUN_DIR")
    if folder is None:
        return
    _register_stacks(folder)
    _said.update(news)
    path = os.path.join(folder, f"progress.{_rank()}")
    with contextlib.suppress(OSError):  # training goes on where nobody hears of it
        number, new = tempfile.mkstemp(dir=folder)
        with os.fdopen(number, "w") as file:
            json.dump(_said, file)
        os.replace(new, path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.setblocking(False)
            to.sendto(b"", os.environ["MUSTER_SOCKET"])


def _register_stacks(folder: str) -> None:
    """Have a signal write the stacks of all threads into the run folder, for the agent."""
    global _stacks
    if _said.get("stacks_pid") == os.getpid() or _said.get("is_rank") is False:
        return
    _said["stacks_pid"] = os.getpid()
    path = os.path.join(folder, f"stacks.{_rank()}")
    with contextlib.suppress(OSError):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        faulthandler.register(_STACKS_SIGNAL, file=number, all_threads=True)
        if _stacks is not None:
            os.close(_stacks)
        _stacks = number


def _sync(folder: Path) -> None:
    """Write the files of a folder and their names through to the disk."""
    for path in (*folder.iterdir(), folder):
        if path.is_file() or path == folder:
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def _take_up() -> None:
    """Go on from what the rank has said: this process speaks for it, and ends at once."""
    folder = os.environ.get("MUSTER_RUN_DIR")
    path = os.path.join(folder or "", f"progress.{_rank()}")
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        _said.update(json.load(file))
    _said.setdefault("stacks_pid", 0)
    _said["is_rank"] = False


def main(arguments: list[str]) -> int:
    """Serve shell scripts: `saved STEP PATH [MARKER]`, `report STEP`, and `should-save`, whose exit
    code is 0 when muster asks for a checkpoint. `copy STEP FILE` keeps a copy of a file in memory;
    `copied` prints step and path of this rank's copy, and ends with 1 where there is none."""
    _take_up()
    match arguments:
        case ["saved", step, path, *marker] if step.isdecimal() and len(marker) < 2:
            saved(int(step), path, marker=marker[0] if marker else "")
        case ["report", step] if step.isdecimal():
            report(int(step))
        case ["should-save"]:
            return 0 if should_save() else 1
        case ["copy", step, file] if step.isdecimal():
            with copying(int(step)) as target:
                shutil.copyfile(file, target)
        case ["copied"]:
            if (copy := copied()) is None:
                return 1
            sys.stdout.write(f"{copy.step} {copy.path}\n")
        case _:
            sys.stderr.write(f"{main.__doc__}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
