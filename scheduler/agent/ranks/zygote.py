"""A process that has imported modules, and forks ranks that need not import them again.

Run by the user's interpreter, as the user, with the standard library alone; the supervisor is at
the other end of file descriptor 3. Most of a cold start is importing: a forked rank begins its
script within milliseconds. What must not be in the parent: a CUDA context, threads that hold
locks. Importing torch makes neither.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_MOST_VALUE = 1 << 17  # bytes of a variable, as of a rank that is started cold
_libc = ctypes.CDLL(None)


def _read_value(path: str) -> str:
    """Return the value of a variable from its file. Raises: OSError, also where it is longer than
    the kernel takes."""
    with open(path, "rb") as file:
        value = file.read(_MOST_VALUE)
    if len(value) == _MOST_VALUE:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return value.decode().rstrip("\n")


def main() -> None:
    supervisor, modules = int(sys.argv[1]), sys.argv[2:]
    link = socket.socket(fileno=3)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        return
    for module in modules:
        importlib.import_module(module)
    link.send(b"ready")
    wake, on_signal = os.pipe()
    os.set_blocking(on_signal, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(on_signal, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(wake, selectors.EVENT_READ)
    selector.register(link, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd == wake:
                os.read(wake, 512)
                _reap(link)
            else:
                order = _order(link)
                if order is None:
                    return
                wanted, into = order
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _be_rank(wanted, into)
                os.close(into)
                link.send(struct.pack("=cii", b"f", pid, 0))


def _order(link: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Read the next order and the file for its output; None: the supervisor has gone."""
    head, files, _, _ = socket.recv_fds(link, 4, 1)
    if not head:
        return None
    (size,) = struct.unpack("=I", head)
    body = b""
    while len(body) < size:
        body += link.recv(60_000)
    return json.loads(body), files[0]


def _reap(link: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        link.send(struct.pack("=cii", b"e", pid, status))


def _be_rank(wanted: dict[str, Any], into: int) -> None:
    """Run the program as `python FILE ...` or `python -m MODULE ...` would, then exit."""
    os.setsid()
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(into, 1)
    os.dup2(into, 2)
    os.closerange(3, 256)
    os.environ.clear()
    home = os.path.expanduser("~" + wanted["user"])
    os.environ.update(
        PATH="/usr/local/bin:/usr/bin:/bin",
        LANG="C.UTF-8",
        HOME=home,
        USER=wanted["user"],
        LOGNAME=wanted["user"],
    )
    os.environ.update(wanted["env"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - those of the parent are another's
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    code: Any = 1
    try:
        os.chdir(wanted["workdir"])
        _extend_path(wanted["env"].get("PYTHONPATH", ""))
        for name, path in wanted["env_from"].items():
            os.environ[name] = _read_value(path)
        _, *argv = wanted["argv"]
        if argv[0] == "-m":
            sys.argv = argv[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
            runpy.run_path(argv[0], run_name="__main__")
        code = 0
    except SystemExit as done:
        code = done.code
        if code is None:
            code = 0
        elif not isinstance(code, int):
            print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code & 0xFF)


def _extend_path(text: str) -> None:
    for folder in reversed([part for part in text.split(os.pathsep) if part]):
        if folder not in sys.path:
            sys.path.insert(0, folder)


if __name__ == "__main__":
    # Its own folder is no place to import from.
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    main()
