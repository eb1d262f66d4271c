"""One attempt of a job on this host: its folder, its supervisor, and what became of its ranks.

All that must outlive the agent is in the folder, so that an agent that starts again goes on from
there: the order, a port that was promised, pids, exits, how far the ranks have come.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from muster.structs import struct
from scheduler.agent.ranks.processes import (
    end_group,
    end_marked,
    end_process,
    has_killed_for_memory,
    is_of_user,
    remove_group,
)
from scheduler.agent.ranks.rank_times import ComputedStep, TimesOfRanks, newest_steps
from scheduler.agent.ranks.ranklog import read_rank_file
from scheduler.agent.ranks.supervisor import OVER, begun, entry_of, is_populated, kill_group
from scheduler.v1 import agent_pb2

SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
MOST_SAID = 64 << 10  # bytes of a file that ranks write
_MOST_WHERE = 4_096
_MOST_BUSY = 64
_Kind = TypeVar("_Kind")
MOST_UNREADABLE = 100  # reports in a row that are none, after which the attempt fails


class Key(NamedTuple):
    """Names an attempt."""

    job_uid: str
    attempt: int

    @property
    def folder_name(self) -> str:
        return f"{self.job_uid}.{self.attempt}"


class Phase(StrEnum):
    PREPARING = "preparing"  # what ran before has to end first
    PREPARED = "prepared"
    STARTING = "starting"
    STARTED = "started"
    STOPPED = "stopped"  # nothing of it runs, and nothing will


_Small = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


@struct(frozen=True, slots=True)
class RankExit:
    """How a rank ended."""

    rank: _Small
    code: _Small
    signal: _Small
    monotonic_ns: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


@struct(frozen=True, slots=True)
class RankReport:
    """The last report of a rank by muster.progress. `pid`: of a rank that writes down its stacks
    when it is asked to, 0 of another."""

    step: int
    checkpoint_step: int
    checkpoint: str
    can_save: bool
    busy: str
    total: int
    loss: float
    pid: int


class BadReport(ValueError):
    """A rank wrote a report that cannot be read."""


class HostAttempt:
    """`folder` exists and has an order; use `made` or `found`."""

    def __init__(self, key: Key, folder: Path, order: dict[str, Any]) -> None:
        self.key = key
        self.folder = folder
        self.order = order
        self.phase = Phase.PREPARED
        self.has_started = False  # all ranks, whatever became of them
        self.exits: list[RankExit] = []
        self.said = agent_pb2.Progress()  # of the furthest of its ranks
        self.refusal = ""
        # Reports that were none, of ranks of this host: since the last good one, and not yet told.
        self.unreadable = self.untold = 0
        self.spoiled = ""  # why the agent ended the ranks, where they are to blame
        self.end_strays: Callable[[], bool] = lambda: False  # of supervisors that are gone
        self.kill_s: float | None = None  # by when what is left is killed, of one that is stopped
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.supervisor_pid = self._supervisor_begun = 0
        self._read_bytes = 0
        self._said_ns = 0
        self._times: TimesOfRanks | None = None
        self._killed_s = 0.0
        self._was_out_of_memory = False

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs of the host that it has; none: all of them."""
        return frozenset(self.order.get("gpus", ()))

    @staticmethod
    def create(
        key: Key,
        root: Path,
        order: dict[str, Any],
        user: pwd.struct_passwd,
        *,
        keeps_logs: bool = False,
    ) -> HostAttempt:
        """A new one, with the folder in which its ranks say how far they are."""
        folder = root / key.folder_name
        for each in folder.iterdir() if keeps_logs and folder.exists() else ():
            if each.name != "logs":
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        if not keeps_logs:
            shutil.rmtree(folder, ignore_errors=True)
        for part in ("logs", "run"):
            (folder / part).mkdir(parents=True, exist_ok=keeps_logs)
        if os.geteuid() == 0:
            os.chown(folder / "run", user.pw_uid, user.pw_gid)
        folder.chmod(0o711)
        attempt = HostAttempt(key, folder, order)
        attempt.write_order()
        return attempt

    @staticmethod
    def from_folder(folder: Path) -> HostAttempt | None:
        """An attempt of an earlier life of the agent; None: it is unreadable, and removed."""
        uid, _, number = folder.name.rpartition(".")
        try:
            order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
            attempt = HostAttempt(Key(uid, int(number)), folder, order)
        except (OSError, ValueError):
            shutil.rmtree(folder, ignore_errors=True)
            return None
        if (folder / "supervisor").exists():
            pid, since = (folder / "supervisor").read_text().split()
            attempt.supervisor_pid, attempt._supervisor_begun = int(pid), int(since)
            attempt.phase = Phase.STARTING
            attempt.look()
        elif (folder / "stopped").exists():
            attempt.phase = Phase.STOPPED
        return attempt

    @property
    def has_run_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of it for its memory; known where it has a cgroup."""
        group = str(self.order.get("cgroup", ""))
        return self._was_out_of_memory or (group != "" and has_killed_for_memory(group))

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.STOPPED

    @property
    def has_processes(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.STARTED)

    def write_order(self) -> None:
        path = self.folder / "order.json"
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        with new.open("w", encoding="utf-8") as file:
            json.dump(self.order, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def launch(self, warm: subprocess.Popen[bytes] | None) -> None:
        """Start the supervisor, or give the attempt to one that is warm."""
        self.phase = Phase.STARTING
        (self.folder / "run" / "save").unlink(missing_ok=True)
        if warm is not None and warm.poll() is None and warm.stdin is not None:
            self.supervisor = warm
        else:
            with (self.folder / "supervisor.log").open("ab") as says:
                self.supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", SUPERVISOR, str(self.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=says,
                    start_new_session=True,
                    env={},
                )
        pid = self.supervisor.pid
        self.supervisor_pid, self._supervisor_begun = pid, begun(pid)
        text = f"{pid} {self._supervisor_begun}"
        (self.folder / "supervisor").write_text(text, encoding="ascii")
        if self.supervisor is warm and warm is not None and warm.stdin is not None:
            with contextlib.suppress(OSError):
                warm.stdin.write(f"{self.folder}\n".encode())
                warm.stdin.close()
            if warm.stdout is not None:
                warm.stdout.close()

    def look(self) -> list[RankExit]:
        """Take in reports and exits of ranks; return the ranks that have ended since the last
        look."""
        if not self.has_processes:
            return []
        is_alive = self._is_supervised()  # asked first: what it wrote before it left is read
        new, is_over = self._new_exits()  # before `started`, which is written before any exit
        if self.phase is Phase.STARTING:
            if (self.folder / "started").exists():
                self.phase, self.has_started = Phase.STARTED, True
            elif (self.folder / "refused").exists():
                self.refusal = (self.folder / "refused").read_text("utf-8", "replace")
        if not is_over and not is_alive:
            new += self._orphaned()
            is_over = not self._is_populated()
        self.exits += new
        if is_over and self._is_populated():
            kill_group(self.order.get("cgroup", ""))
        elif is_over:
            if self.phase is Phase.STARTING and not self.refusal:
                self.refusal = "its supervisor ended before the ranks had started"
            self._over()
        return new

    def look_at_progress(self) -> bool:
        """Whether the ranks have said something new."""
        folder = self.folder / "run"
        try:
            changed_ns = folder.stat().st_mtime_ns
        except OSError:
            return False
        if changed_ns == self._said_ns:
            return False
        self._said_ns = changed_ns
        before, said = agent_pb2.Progress(), self.said
        before.CopyFrom(said)
        first, count = self.order["ranks"][0]["rank"], int(self.order["env"]["LOCAL_WORLD_SIZE"])
        ranks = range(first, first + count)  # not what else the user puts there
        reports = [self._report(folder / f"progress.{rank}", rank) for rank in ranks]
        said.rank_steps[:] = [report.step if report is not None else 0 for report in reports]
        said.busy = ""
        for report in sorted(filter(None, reports), key=lambda report: report.step):
            said.step = max(said.step, report.step)
            is_newer = report.checkpoint_step > said.checkpoint_step or not said.checkpoint
            if report.checkpoint and is_newer:
                said.checkpoint_step, said.checkpoint = report.checkpoint_step, report.checkpoint
            said.can_save |= report.can_save
            said.busy = report.busy or said.busy
            said.total_steps = report.total
            said.ClearField("loss")
            if math.isfinite(report.loss):
                said.loss = report.loss
        return said != before or self.untold > 0

    def _report(self, path: Path, rank: int) -> RankReport | None:
        """Return what a rank says, None where it says nothing; what is no report is counted."""
        try:
            report = _read_report(path)
        except BadReport:
            self.unreadable += 1
            self.untold += 1
            if self.unreadable >= MOST_UNREADABLE and not self.spoiled:
                words = "wrote what is no report of muster.progress into its file"
                self.spoiled = f"rank {rank} {words}, {self.unreadable} times in a row"
            return None
        self.unreadable = 0 if report is not None else self.unreadable
        return report

    def look_at_times(self, now_s: float) -> list[ComputedStep]:
        """Return how long ranks computed in the steps since the last look."""
        if self._times is None:
            self._times = TimesOfRanks(self._time_files())
        return self._times.look(now_s)

    def computed_steps(self) -> list[int]:
        """Return the newest step that each rank has computed, 0 of one that does not say."""
        return newest_steps(self._time_files())

    def _time_files(self) -> list[Path]:
        folder, first = self.folder / "run", self.order["ranks"][0]["rank"]
        ranks = range(first, first + int(self.order["env"]["LOCAL_WORLD_SIZE"]))
        return [folder / f"times.{rank}" for rank in ranks]

    def ask_to_save(self, left_s: float | None = None) -> None:
        """The ranks see it at their next step, and that they have so many seconds for it."""
        # The folder is the user's: nothing is followed that lies there under this name.
        self.ask_no_more()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            file = os.open(self.folder / "run" / "save", flags, 0o644)
            if left_s is not None:
                until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + left_s
                os.write(file, f"{until_s:.3f}".encode())
            os.close(file)

    def ask_no_more(self) -> None:
        """The ranks have saved what they were asked to."""
        with contextlib.suppress(OSError):
            (self.folder / "run" / "save").unlink()

    def stack_pids(self) -> dict[int, int]:
        """Return the pids of ranks that write their stacks when they are signalled, by rank. A rank
        reports its pid, which counts only if it is a process of the job's user. In a container of
        podman pids are others."""
        if (self.order.get("container") or {}).get("is_podman"):
            return {}
        owner = self._owner
        first, count = self.order["ranks"][0]["rank"], int(self.order["env"]["LOCAL_WORLD_SIZE"])
        pids = {}
        for rank in range(first, first + count):
            said = self._report(self.folder / "run" / f"progress.{rank}", rank)
            if said is not None and said.pid and is_of_user(said.pid, owner):
                pids[rank] = said.pid
        return pids

    def process_pids(self) -> dict[int, int]:
        """Pids of the processes that were started for it, by rank."""
        return {rank: pid for rank, (pid, _) in self._started().items()}

    def stop(self, grace_s: float, now_s: float) -> None:
        """Send SIGTERM to the ranks, and SIGKILL after the grace period; without one, SIGKILL at
        once."""
        if self.phase in (Phase.PREPARING, Phase.PREPARED):
            self._over()
        if not self.has_processes:
            return
        until_s = now_s + grace_s
        is_first = self.kill_s is None
        self.kill_s = until_s if self.kill_s is None else min(self.kill_s, until_s)
        if grace_s <= 0:
            self.kill(now_s)
        elif is_first:
            end_process(self.supervisor_pid, self._supervisor_begun, signal.SIGTERM)

    def kill(self, now_s: float) -> None:
        """Kill every process of the attempt, and again after a second where some are left."""
        if now_s - self._killed_s < 1.0:
            return
        is_again, self._killed_s = self._killed_s > 0, now_s
        if group := self.order.get("cgroup"):
            kill_group(group)
        end_process(self.supervisor_pid, self._supervisor_begun, signal.SIGUSR1)
        if is_again:  # the supervisor does not answer: its ranks are to die with it
            for pid, since in self._pids():
                end_group(pid, since)
            end_process(self.supervisor_pid, self._supervisor_begun, signal.SIGKILL)

    def release(self) -> None:
        """Let go of the processes, which go on when the agent ends."""
        if self.supervisor is not None and self.supervisor.poll() is None:
            self.supervisor.returncode = 0  # nobody waits for it any more

    def forget(self) -> None:
        """Delete the files of the attempt but for its logs."""
        (self.folder / "forgotten").touch()

    def _is_supervised(self) -> bool:
        if self.supervisor is not None:
            return self.supervisor.poll() is None
        return begun(self.supervisor_pid) == self._supervisor_begun != 0

    def _is_populated(self) -> bool:
        """Return whether a process of it is left; without a cgroup, whether one was that its
        supervisor had left behind, which is killed now."""
        if group := str(self.order.get("cgroup", "")):
            return is_populated(group)
        is_left = self.end_strays()
        return end_marked(f"MUSTER_RUN_DIR={self.folder / 'run'}", self._owner) or is_left

    @property
    def _owner(self) -> int:
        """The number of the user as whom its ranks run."""
        return entry_of(self.order["user"]).pw_uid if self.order["user"] else os.geteuid()

    def _new_exits(self) -> tuple[list[RankExit], bool]:
        """New exits of its ranks, and whether nothing of the attempt is left."""
        try:
            with (self.folder / "exits").open("rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
        except OSError:
            return [], False
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        lines = whole.splitlines()
        # Without cgroups and users, ranks can write there as well.
        exits = [done for line in lines if (done := _decoded(line, RankExit)) is not None]
        return exits, OVER in lines

    def _orphaned(self) -> list[RankExit]:
        """The supervisor was killed: its ranks are killed by the kernel, and nobody saw how."""
        if group := self.order.get("cgroup"):
            kill_group(group)
        for pid, since in self._pids():
            end_group(pid, since)
        known = {done.rank for done in self.exits}
        ranks = [rank["rank"] for rank in self.order["ranks"]]
        now_ns = time.monotonic_ns()
        return [RankExit(r, 0, signal.SIGKILL, now_ns) for r in ranks if r not in known]

    def _pids(self) -> list[tuple[int, int]]:
        """(pid, begun) of the ranks."""
        return list(self._started().values())

    def _started(self) -> dict[int, tuple[int, int]]:
        """Return (pid, begun) by rank. Ranks that are of the agent's user can write it as well."""
        data = read_rank_file(self.folder / "started", MOST_SAID) or b""
        return _decoded(data, dict[int, tuple[int, int]]) or {}

    def _over(self) -> None:
        self.phase = Phase.STOPPED
        with contextlib.suppress(OSError):  # a full disk; that it is over is said all the same
            (self.folder / "stopped").touch()
        if group := self.order.get("cgroup"):
            self._was_out_of_memory = has_killed_for_memory(group)
            remove_group(group)


def _read_report(path: Path) -> RankReport | None:
    """Raises: BadReport."""
    data = read_rank_file(path, MOST_SAID)
    return None if data is None else parse_report(data)


def parse_report(data: bytes) -> RankReport:
    """Read the report of a rank, every value of it within bounds and fit for a message.

    Raises: BadReport.
    """
    try:
        entry = json.loads(data)
        step, saved = int(entry.get("step", 0)), int(entry.get("checkpoint_step", 0))
        where = str(entry.get("checkpoint", ""))
        total, pid = int(entry.get("total", 0)), int(entry.get("stacks_pid", 0))
        loss, busy = float(entry.get("loss", math.nan)), str(entry.get("busy", ""))
        has_bad_text = "\0" in where or len(where.encode()) > _MOST_WHERE
        has_bad_text |= len(busy.encode()) > _MOST_BUSY
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise BadReport(str(error)) from None
    counts_fit = all(0 <= count < 2**62 for count in (step, saved, total))
    if has_bad_text or not counts_fit or not 0 <= pid < 2**31:
        raise BadReport("a value is out of bounds")
    can_save = entry.get("can_save") is True
    return RankReport(step, saved, where, can_save, busy, total, loss, pid)


def _decoded(data: bytes, kind: type[_Kind]) -> _Kind | None:
    """Read JSON of this kind; None where it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
