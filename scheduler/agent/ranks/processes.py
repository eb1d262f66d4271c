"""Processes and cgroups of the kernel, as an agent needs them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection
from pathlib import Path

from scheduler.agent.ranks.supervisor import begun, children, end_child, most_processes

_PR_SET_CHILD_SUBREAPER = 36
_MOST_LOOKS = 1_000  # in a row for processes that come and go


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_process(pid: int, since: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to the process that began at that time, never to another that has its pid
    now."""
    if pid > 0 and since and begun(pid) == since:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def end_group(pid: int, since: int) -> None:
    """Send SIGKILL to the process group that this process leads."""
    if pid > 0 and since and begun(pid) == since:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


def end_strays(known: Collection[int]) -> bool:
    """Kill and reap adopted children, which are processes of ranks whose supervisor is gone.

    `known`: pids that this process started in a session of their own. Return whether any is left.
    """
    for _ in range(_MOST_LOOKS):
        strays = [pid for pid in children() if pid not in known and _is_of_other_session(pid)]
        for pid in strays:
            end_child(pid)
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        if not strays:
            return False
    return True


def _is_of_other_session(pid: int) -> bool:
    try:
        return os.getsid(pid) != os.getsid(0)
    except OSError:
        return False


def end_marked(variable: str, uid: int) -> bool:
    """Kill the processes of a user that have this in their environment; return whether there was
    any."""
    is_found, mark = False, variable.encode() + b"\0"
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if path.parent.stat().st_uid == uid and mark in path.read_bytes() + b"\0":
                is_found = True
                os.kill(int(path.parent.name), signal.SIGKILL)
    return is_found


class CgroupRoot:
    """Where the agent makes a cgroup (v2) for each attempt; `path` None: the agent cannot make
    any."""

    def __init__(self, host: str) -> None:
        self.path = _own_cgroup(host)

    def make(self, name: str) -> str:
        """Make the cgroup of an attempt, and return its path; "" where there are none."""
        if self.path is None:
            return ""
        group = self.path / name
        try:
            group.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        with contextlib.suppress(OSError):  # where the controller is not enabled
            (group / "pids.max").write_text(str(most_processes()))
        return str(group)

    def close(self) -> None:
        """Remove the cgroups, unless ranks run on in them."""
        if self.path is not None:
            remove_group(str(self.path))


def is_of_user(pid: int, uid: int) -> bool:
    """Return whether the process exists and runs as that user."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == uid
    except OSError:
        return False


def catches(pid: int, number: int) -> bool:
    """Return whether the process has a handler for that signal, which would end it otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    mask = next((row.split()[1] for row in status.splitlines() if row.startswith("SigCgt")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def has_killed_for_memory(group: str) -> bool:
    """Whether the kernel killed a process of the group because its memory was used up."""
    try:
        rows = Path(group, "memory.events").read_text().splitlines()
    except OSError:
        return False
    return any(row.startswith("oom_kill ") and not row.endswith(" 0") for row in rows)


def remove_group(group: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(group)


def _own_cgroup(host: str) -> Path | None:
    """A cgroup below the agent's own in which cgroup.kill works (kernel 5.14)."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        own = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    points = [row.split()[4] for row in mounts if " - cgroup2 " in row]
    below = next((row[3:] for row in own if row.startswith("0::")), "")
    for point in points if below else ():
        root = Path(point + below) / f"muster-agent-{host}"
        try:
            root.mkdir(exist_ok=True)
        except OSError:
            continue
        if os.access(root / "cgroup.kill", os.W_OK) and os.access(root / "cgroup.procs", os.W_OK):
            return root
    return None
