"""The process that keeps a lab: namespaces last as long as it does, and take all with them.

It has a network, mount and process namespace of its own, and a user namespace where it is not
root. Hosts are network namespaces with names below a /run that nobody else sees. When it is killed,
every process of the lab is killed, and with the last of them the kernel removes networks and names:
nothing is left behind, whichever process is killed with -9 first.

`python -m lab.keeper` reads commands as JSON on stdin, and writes lines of JSON: its process
number, how many namespaces are ready, at last `ready` or `error`. It uses the standard library
alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NEW_MOUNTS, NEW_USER, NEW_PIDS, NEW_NET = 0x20000, 0x10000000, 0x20000000, 0x40000000
PRIVATE = (1 << 18) | (1 << 14)  # MS_PRIVATE, of all mounts below
AT_ONCE = 8
# Sockets of 96 kB: fair shares without retransmits, whichever program sends.
SETTINGS = {
    "ipv4/tcp_wmem": "4096 65536 98304",
    "ipv4/tcp_rmem": "4096 98304 98304",
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, doing: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


def enter_network(path: str) -> None:
    """Move this process to the network namespace at `path`."""
    with open(path, "rb") as namespace:
        _checked(_libc.setns(namespace.fileno(), NEW_NET), path)


def _mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    texts = source.encode(), target.encode(), kind.encode()
    _checked(_libc.mount(*texts, flags, None), f"mount {kind or source} on {target}")


def _unshare() -> None:
    """Into namespaces of its own; children are in the process namespace as well."""
    user, group, is_root = os.geteuid(), os.getegid(), os.geteuid() == 0
    flags = NEW_MOUNTS | NEW_PIDS | NEW_NET
    _checked(_libc.unshare(flags if is_root else flags | NEW_USER), "unshare")
    if not is_root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _run(program: str, lines: Sequence[str], namespace: str = "") -> subprocess.Popen[str]:
    """Start `ip` or `tc` on these lines."""
    where = ["-n", namespace] if namespace else []
    process = subprocess.Popen(
        [program, *where, "-batch", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("\n".join(lines) + "\n")
    process.stdin.close()
    process.stdin = None
    return process


def _finish(process: subprocess.Popen[str]) -> None:
    _, complaint = process.communicate()
    if process.returncode:
        said = " ".join(complaint.split())
        raise OSError(f"{Path(str(process.args[0])).name}: {said[:500]}")  # type: ignore[index]


def _settings() -> None:
    # What the kernel lets everybody use; the default of some, bbr, shares a link unevenly.
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    chosen = "cubic" if "cubic" in allowed else "reno"
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(chosen)
    for name, value in SETTINGS.items():
        path = Path("/proc/sys/net") / name
        if path.exists():
            path.write_text(value)


def _tell(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _build(commands: Sequence[dict[str, Any]]) -> None:
    hub, *others = commands
    _mount("none", "/", "", PRIVATE)
    _mount("proc", "/proc", "proc")
    _mount("tmpfs", "/run", "tmpfs")
    _settings()
    _finish(_run("ip", hub["ip"]))
    _finish(_run("tc", hub["tc"]))
    home = f"/proc/{os.getpid()}/ns/net"
    with open(home, "rb") as own:
        for namespace in others:
            enter_network(f"/run/netns/{namespace['namespace']}")
            _settings()
        _checked(_libc.setns(own.fileno(), NEW_NET), "setns")
    for first in range(0, len(others), AT_ONCE):
        batch = others[first : first + AT_ONCE]
        for program in ("ip", "tc"):
            running = [_run(program, each[program], each["namespace"]) for each in batch]
            for process in running:
                _finish(process)
        _tell(done=first + len(batch))


def _keep() -> None:
    """Wait for ever; children that lost their parent leave no zombies."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()


def main() -> None:
    """Make a lab from stdin and keep it."""
    commands = json.load(sys.stdin)
    try:
        _unshare()
    except OSError as error:
        _tell(error=str(error.strerror or error))
        return
    child = os.fork()
    if child:
        _tell(pid=child)
        os._exit(0)
    os.setsid()
    try:
        _build(commands)
    except OSError as error:
        _tell(error=f"{error.filename or ''} {error.strerror or error}".strip())
        os._exit(1)
    _tell(ready=True)
    _keep()


if __name__ == "__main__":
    main()
