"""The parent of the ranks of one attempt on one host: a process of its own.

It starts the ranks, writes their output into logs that turn over, writes down how each ended,
and leaves when nothing of the attempt is left. It outlives the agent, which finds it again after
a restart by what is in the folder of the attempt:

    order.json   what to run, written by the agent
    started      pids of the ranks, once all have started; or `refused`: why they have not
    exits        a line of JSON for each rank that has ended, then `{"over": true}`
    logs/        rank-N.log, and rank-N.log.1 before it
    run/         written by the ranks: how far they have come (muster.progress)

    SIGTERM      goes to all ranks           SIGUSR1     ends every process of the attempt

Run as a file, by the interpreter of the agent, with the standard library alone. With --warm it
first has a zygote import modules as the user of the job, and waits for its folder on stdin.
With --beside it runs a command beside the ranks (`run_beside`), with --gate a program before them,
as one of them would be, by the order on stdin.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pwd
import resource
import selectors
import signal
import socket
import struct
import sys
import termios
import time
from typing import Any, NoReturn

TIME_OVER = 124  # exit code of a gate that was ended, as of timeout(1)
OVER = b'{"over": true}'  # the last line of the exits
LOG_BYTES = 16 << 20  # of a log, before it turns over
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CANNOT_RUN = 127
_MOST_VALUE = 1 << 17  # bytes of a variable, by MAX_ARG_STRLEN of Linux
_ROOM_S = 20.0  # for which a full disk may take to have room for how a rank ended
_ZYGOTE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zygote.py")
_libc = ctypes.CDLL(None, use_errno=True)


class CannotStart(Exception):
    """A rank cannot be started; the text says why."""


class Log:
    """Log of one rank: a file that is rotated, and the file before it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o640)
        self._bytes = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop the rank
            self._bytes += os.write(self._file, data)
        if self._bytes >= LOG_BYTES:
            os.close(self._file)
            with contextlib.suppress(OSError):
                os.replace(self._path, self._path + ".1")
            self._open()


class Supervisor:
    """One attempt. `zygote`: where ranks are forked from, None: they are executed."""

    def __init__(self, folder: str, zygote: Zygote | None) -> None:
        with open(os.path.join(folder, "order.json"), encoding="utf-8") as file:
            self._order: dict[str, Any] = json.load(file)
        self._folder = folder
        self._zygote = zygote
        self._rank_by_pid: dict[int, int] = {}
        self._running: set[int] = set()  # ranks
        self._selector = selectors.DefaultSelector()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._exits = os.open(os.path.join(folder, "exits"), flags, 0o640)
        self._wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        if zygote is not None:
            self._selector.register(zygote.link, selectors.EVENT_READ, zygote)

    def run(self) -> None:
        try:
            self._start()
        except CannotStart as error:
            self._running.clear()  # how they end is nobody's failure: the attempt is refused
            self._end_all()
            _write(os.path.join(self._folder, "refused"), str(error))
            self._record(OVER)
            return
        pids = {str(rank): [pid, begun(pid)] for pid, rank in self._rank_by_pid.items()}
        _write(os.path.join(self._folder, "started"), json.dumps(pids))
        self._poke()
        while self._running:
            self._serve_events()
        self._end_all()
        self._drain()
        self._record(OVER)

    def _start(self) -> None:
        order, failures = self._order, []
        logs = os.path.join(self._folder, "logs")
        for rank in order["ranks"]:
            log = Log(os.path.join(logs, f"rank-{rank['rank']}.log"))
            out, into = os.pipe2(os.O_CLOEXEC)
            if self._zygote is not None:
                pid = self._zygote.fork(order, rank, into)
            else:
                pid, failure = _spawn(order, rank, into)
                failures.append(failure)
            os.close(into)
            os.set_blocking(out, False)
            self._selector.register(out, selectors.EVENT_READ, log)
            self._rank_by_pid[pid] = rank["rank"]
            self._running.add(rank["rank"])
        for failure in failures:  # closed by a successful exec, else the child says what failed
            with open(failure, "rb") as says:
                text = says.read().decode()
            if text:
                raise CannotStart(text)

    def _serve_events(self) -> None:
        for key, _ in self._selector.select():
            if key.fd not in self._selector.get_map():
                continue  # read to its end by `_drain`, for a rank that ended in this turn
            if key.data is None:
                self._signalled()
            elif isinstance(key.data, Zygote):
                self._forked_ended(key.data)
            else:
                self._copy(key.fd, key.data)

    def _signalled(self) -> None:
        numbers = os.read(self._wake, 512)
        if signal.SIGTERM in numbers:
            for pid, rank in self._rank_by_pid.items():
                if rank in self._running:
                    _signal_group(pid, signal.SIGTERM)
        if signal.SIGUSR1 in numbers:
            self._end_all()
        self._reap()

    def _reap(self) -> bool:
        """Return whether this process has no child left, dead or alive."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        rank = self._rank_by_pid.get(pid)
        if rank is None or rank not in self._running:
            return
        self._running.discard(rank)
        code = os.waitstatus_to_exitcode(status)
        self._drain()
        ended = {"rank": rank, "code": max(0, code), "signal": max(0, -code)}
        self._record(json.dumps(ended | {"monotonic_ns": time.monotonic_ns()}).encode())

    def _forked_ended(self, zygote: Zygote) -> None:
        for pid, status in zygote.ended():
            self._ended(pid, status)
        if zygote.is_gone:
            self._selector.unregister(zygote.link)

    def _copy(self, out: int, log: Log) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(out, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(out)
            os.close(out)
            return False
        log.write(data)
        return True

    def _drain(self) -> None:
        """Write down what ranks have written before they ended."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Log):
                while self._copy(key.fd, key.data):
                    pass

    def _end_all(self) -> None:
        """Kill every process of the attempt, whatever group or session it is in.

        None is left once this process has no child, for it adopts whoever loses its parent. What
        forks and exits is there for no longer than a look takes: its group is killed with it, and
        looks follow each other without a pause while they find others.
        """
        group, before = self._order.get("cgroup"), list[int]()
        while True:
            kill_group(group)
            pids = children()
            for pid in pids:
                end_child(pid)
            has_none = self._reap()
            if self._zygote is not None:
                for pid, status in self._zygote.ended():
                    self._ended(pid, status)
            if has_none and not (group and is_populated(group)):
                break
            if pids == before:
                time.sleep(0.002)
            before = pids
        # Those of a zygote that was killed with them report no more.
        for pid, rank in self._rank_by_pid.items():
            if rank in self._running:
                self._ended(pid, signal.SIGKILL)

    def _record(self, line: bytes) -> None:
        until_s = time.monotonic() + _ROOM_S
        while True:
            try:
                os.write(self._exits, line + b"\n")
                os.fsync(self._exits)
                break
            except OSError:  # a full disk
                if time.monotonic() > until_s:
                    break
                time.sleep(0.1)
        self._poke()

    def _poke(self) -> None:
        """Tell the agent to look; one that is not there looks when it is back."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.setblocking(False)
            to.sendto(b"", self._order["socket"])


class Zygote:
    """A process of the user's interpreter that has imported modules and forks ranks."""

    def __init__(self, interpreter: str, modules: list[str], user: str) -> None:
        self.link, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.is_gone = False
        self._unread: list[tuple[int, int]] = []
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.dup2(child_end.fileno(), 3)
                os.set_inheritable(3, True)
                environment = _become(user, {})
                argv = [interpreter, _ZYGOTE, str(os.getppid()), *modules]
                os.closerange(4, 4096)
                os.execvpe(interpreter, argv, environment)
            finally:
                os._exit(_CANNOT_RUN)
        child_end.close()

    def fork(self, order: dict[str, Any], rank: dict[str, Any], into: int) -> int:
        """Fork a new rank, and return its pid. Raises: CannotStart."""
        if group := order.get("cgroup"):
            _write_fast(os.path.join(group, "cgroup.procs"), str(self.pid).encode())
        wanted = {
            "argv": order["command"],
            "env": order["env"] | rank["env"],
            "env_from": order.get("env_from", {}),
            "workdir": order["workdir"],
            "user": order["user"],
        }
        body = json.dumps(wanted).encode()
        self.link.settimeout(30)
        try:
            # Two messages: the length may be more than one datagram holds at once.
            socket.send_fds(self.link, [struct.pack("=I", len(body))], [into])
            for at in range(0, len(body), 60_000):
                self.link.send(body[at : at + 60_000])
            while True:
                message = self.link.recv(64)
                if not message:
                    raise CannotStart(f"the warm process of {order['command'][0]} has ended")
                kind, pid, status = struct.unpack("=cii", message)
                if kind == b"f":
                    return int(pid)
                self._unread.append((pid, status))
        except OSError as error:
            raise CannotStart(f"the warm process does not answer: {error}") from None
        finally:
            self.link.setblocking(False)

    def ended(self) -> list[tuple[int, int]]:
        """Return (pid, status) of the ranks that have ended since the last call."""
        ended, self._unread = self._unread, []
        while not self.is_gone:
            try:
                message = self.link.recv(64)
            except BlockingIOError:
                break
            except OSError:
                message = b""
            if not message:
                self.is_gone = True
                break
            _, pid, status = struct.unpack("=cii", message)
            ended.append((pid, status))
        return ended


def _spawn(
    order: dict[str, Any], rank: dict[str, Any], into: int | None, port: int = 0
) -> tuple[int, int]:
    """Its pid, and a pipe on which it says why it cannot be executed. `into`: what it writes
    goes there; None: it has the terminal or the pipes of this process."""
    failure, says = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_rank(order, rank, into, says, parent, port)
    os.close(says)
    return pid, failure


def run_beside(folder: str, rank: str, port: str, command: list[str]) -> int:
    """Run a command on the terminal or the pipes of this process, as the user of the ranks in
    `folder` and with the environment of one of them; with a `port` pass on what goes there instead.
    Return its exit code. This process ends with its parent."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    die_with(os.getppid())
    with open(os.path.join(folder, "order.json"), encoding="utf-8") as file:
        order: dict[str, Any] = json.load(file)
    user = entry_of(order["user"])
    shell = "/bin/sh" if order.get("container") else user.pw_shell or "/bin/sh"
    order["command"] = command or [shell]
    if os.isatty(0):
        os.fchown(0, user.pw_uid, -1)
        order["env"] = {"TERM": "xterm-256color"} | order["env"]
    before = [each for each in order["ranks"] if each["rank"] <= int(rank)]
    return _run_to_end(order, (before or order["ranks"])[-1], None, int(port))


def run_gate(order: dict[str, Any]) -> int:
    """Run one program as a rank, with its output on stdout. Return its exit code, TIME_OVER where
    it took too long."""

    def end(*_: object) -> NoReturn:
        raise TimeoutError

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, end)
    try:
        signal.alarm(order["gate_s"])
        return _run_to_end(order, {"env": {}}, 1)
    except TimeoutError:
        return TIME_OVER


def _run_to_end(
    order: dict[str, Any], rank: dict[str, Any], into: int | None, port: int = 0
) -> int:
    """Run one program as a rank, and end all that it has started with it. Return its exit code as a
    shell has it. `into`, `port`: as `_spawn` has them."""
    try:
        pid, failure = _spawn(order, rank, into, port)
        with open(failure, "rb") as says:
            os.write(2, says.read())
        if into is None:
            for number in (0, 1):
                os.close(number)
        while (ended := os.wait())[0] != pid:
            pass  # an orphan of it
        code = os.waitstatus_to_exitcode(ended[1])
        return code if code >= 0 else 128 - code
    finally:
        signal.alarm(0)
        _end_children()


def _relay(link: socket.socket) -> None:
    """Pass on what comes on stdin, and on stdout what comes back, until the other side ends."""

    import threading  # of no use to any other supervisor

    def send() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, 1 << 16):
                link.sendall(data)
            link.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    while data := link.recv(1 << 16):
        os.write(1, data)


def _be_rank(
    order: dict[str, Any], rank: dict[str, Any], into: int | None, says: int, parent: int, port: int
) -> NoReturn:
    stage = "start"
    try:
        os.setsid()
        if group := order.get("cgroup"):
            _write_fast(os.path.join(group, "cgroup.procs"), b"0")
        if into is not None:
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)
            os.dup2(into, 1)
            os.dup2(into, 2)
        elif os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if port:
            # What `_relay` needs is loaded as long as the library of Python can be read.
            import threading  # noqa: F401

            "localhost".encode("idna")
        stage = f"become user {order['user']}"
        own: dict[str, str] = order["env"] | rank["env"]
        container: dict[str, Any] = order.get("container") or {}
        # To map more users than one podman has programs with rights; its containers gain none.
        may_gain = bool(container.get("is_podman"))
        environment = _become(order["user"], own, may_gain=may_gain)
        die_with(parent)
        stage = f"enter directory {order['workdir']}"
        os.chdir(order["workdir"])
        for name, path in order.get("env_from", {}).items():
            stage = f"read {name} from {path}"
            own[name] = environment[name] = _read_value(path)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if port:
            stage = f"connect to port {port}"
            link = socket.create_connection(("localhost", port), 10)
            link.settimeout(None)
            os.close(says)
            _relay(link)
            os._exit(0)
        command = order["command"]
        if container:
            command = _container_command(container, own, environment, into is None) + command
        stage = f"execute {command[0]}"
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(says, f"cannot {stage}: {os.strerror(error.errno or errno.EINVAL)}".encode())
    except Exception as error:
        os.write(says, f"cannot {stage}: {error}".encode())
    finally:
        os._exit(_CANNOT_RUN)


def _container_command(
    container: dict[str, Any], own: dict[str, str], environment: dict[str, str], is_beside: bool
) -> list[str]:
    """Return what runs the arguments that follow in a container, with the variables `own` in it.
    Their values are in no argument, which other users would see. `is_beside`: a rank."""
    words: list[str] = [*container["argv"]]
    if container["is_podman"]:
        words += [f"--env={name}" for name in own]
        for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            most = resource.getrlimit(number)[1]
            words += [f"--ulimit={name}={most}:{most}"] if most >= 0 else []
        words += ["--tty"] if os.isatty(0) else []
        if not is_beside:  # podman keeps what was killed until another has its name
            words += ["--replace", f"--name=muster-{own['MUSTER_JOB_UID']}-{own['RANK']}"]
        words += ["--userns=keep-id"] if os.geteuid() else []
    else:
        for name in {"PATH", "LD_LIBRARY_PATH"} & own.keys():  # else those of the image
            for tool in ("APPTAINER", "SINGULARITY"):
                environment[f"{tool}ENV_{name}"] = own[name]
        words += ["--userns"] if os.geteuid() else []  # the other way needs programs with rights
    return [*words, *container["image"]]


def _read_value(path: str) -> str:
    """Return the value of a variable from its file. Raises: OSError, also where it is longer than
    the kernel takes."""
    with open(path, "rb") as file:
        value = file.read(_MOST_VALUE)
    if len(value) == _MOST_VALUE:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return value.decode().rstrip("\n")


def own_entry() -> pwd.struct_passwd:
    """Return the agent's user in the password database; under its number where it has no name
    there, as in many containers."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number)
    except KeyError:
        home = os.environ.get("HOME", "/")
        return pwd.struct_passwd((str(number), "x", number, os.getegid(), "", home, "/bin/sh"))


def entry_of(name: str) -> pwd.struct_passwd:
    """Return a user's entry in the password database. Raises: KeyError."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        own = own_entry()
        if own.pw_name != name:
            raise
        return own


def _become(user: str, variables: dict[str, str], *, may_gain: bool = False) -> dict[str, str]:
    """Take on the user, for good; the whole environment. `may_gain`: programs with more rights give
    them."""
    entry = entry_of(user)
    if os.geteuid() == 0:
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    elif entry.pw_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the agent is not root")
    if not may_gain:
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, (most_processes(),) * 2)
    os.umask(0o022)
    usual = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": entry.pw_dir,
        "USER": user,
        "LOGNAME": user,
    }
    return usual | variables


def most_processes() -> int:
    """Return how many processes and threads a user's ranks may have: half of the kernel's."""
    limits = [resource.getrlimit(resource.RLIMIT_NPROC)[1]]
    for name in ("pid_max", "threads-max"):
        with contextlib.suppress(OSError), open(f"/proc/sys/kernel/{name}", "rb") as file:
            limits.append(int(file.read()) // 2)
    return min((limit for limit in limits if limit >= 0), default=1 << 15)


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the supervisor ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_CANNOT_RUN)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, number)


def children() -> list[int]:
    """Return the pids of the children of this process, adopted and dead ones among them."""
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children", "rb") as file:
            return list(map(int, file.read().split()))
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _is_own(pid)]


def _is_own(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1]) == os.getpid()
    return False


def end_child(pid: int) -> None:
    """Send SIGKILL to a child, and then to its process group, unless that is the group of this
    process."""
    with contextlib.suppress(OSError):
        if os.getpgid(pid) not in (0, os.getpgrp()):
            os.killpg(os.getpgid(pid), signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def is_populated(group: str) -> bool:
    """Return whether a process is in the cgroup."""
    try:
        with open(os.path.join(group, "cgroup.events"), encoding="ascii") as file:
            return "populated 1" in file.read()
    except OSError:
        return False


def kill_group(group: str | None) -> None:
    """Send SIGKILL to every process in the cgroup, also to processes that are being forked."""
    with contextlib.suppress(OSError):
        if group:
            _write_fast(os.path.join(group, "cgroup.kill"), b"1")


def begun(pid: int) -> int:
    """Return when a process began, in ticks since boot: with the pid, a name that is not used
    twice; 0 where there is none, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *rest = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if state == b"Z" else int(rest[18])


def _write(path: str, text: str) -> None:
    """Whole or not at all, and durable."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def _write_fast(path: str, data: bytes) -> None:
    """Into a file of the kernel."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def _end_children() -> None:
    """End all that this process has started, and what that has, which it adopts."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while left := children():
        for each in left:
            end_child(each)
        os.wait()


def main() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if sys.argv[1] == "--beside":
        folder, rank, port, *command = sys.argv[2:]
        sys.exit(run_beside(folder, rank, port, command))
    if sys.argv[1] == "--gate":
        sys.exit(run_gate(json.load(sys.stdin)))
    if sys.argv[1] != "--warm":
        Supervisor(sys.argv[1], None).run()
        return
    interpreter, user, *modules = sys.argv[2:]
    zygote = Zygote(interpreter, modules, user)
    if zygote.link.recv(64)[:1] == b"r":  # else it could not import
        os.write(1, b"ready\n")
        if folder := sys.stdin.readline().strip():
            zygote.link.setblocking(False)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            log = os.open(os.path.join(folder, "supervisor.log"), flags, 0o644)
            os.dup2(log, 2)  # as of one that is not warm
            Supervisor(folder, zygote).run()
    with contextlib.suppress(OSError):
        os.kill(zygote.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
