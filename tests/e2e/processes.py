"""`muster` as its users run it: separate processes, real files, real ports."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import grpc
import yaml

from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.build import fabric_spec
from tests.ports import free_port

MUSTER = str(Path(sys.executable).with_name("muster"))


class RunningServer:
    """`muster serve` in a folder, started as often as wished. `options`: of the command; `env`: its
    environment, None for that of this process. `address`: where it answers, as it says itself."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        name: str = "serve",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.options, self.env = folder, options, env
        self.address = ""
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[str] | None = None

    def begin(self, *options: str) -> None:
        """Start it, and wait for nothing."""
        with self.log.open("ab") as err:
            self.process = subprocess.Popen(
                [MUSTER, "serve", *self.options, *options],
                cwd=self.folder,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )

    def start(self, *options: str) -> None:
        """Return when the server has said that it is ready."""
        self.begin(*options)
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " on " in line, line + self.log.read_text()
        self.address = line.split(" on ")[1].split(",")[0].strip()

    def role(self, *metadata: tuple[str, str]) -> tuple[str, int]:
        """The role and the version that the server states; "" when it does not answer."""
        with grpc.insecure_channel(self.address) as channel:
            call = service_pb2_grpc.SchedulerServiceStub(channel).ListTenants.with_call
            try:
                request = service_pb2.ListTenantsRequest()
                _, answered = call(request, timeout=1.0, metadata=metadata)
            except grpc.RpcError:
                return "", 0
        stated = dict(answered.trailing_metadata())
        return str(stated.get("muster-role", "")), int(stated.get("muster-version", 0))

    def send_signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, also while it stands still; the exit code, 0 where it does not run."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        with process:
            return process.wait(60)


class ServerProcess(RunningServer):
    """A server on one store and one port."""

    def __init__(self, folder: Path, store: str = "") -> None:
        self.store = folder / "muster.db"
        self.url = store or f"sqlite:///{self.store}"
        fabric = folder / "fabric.yaml"
        fabric.write_text(yaml.safe_dump(fabric_spec(2, 4, 2)))
        address = f"127.0.0.1:{free_port()}"
        options = ["--fabric", str(fabric), "--store", self.url, "--listen", address]
        super().__init__(folder, options)
        self.address = address

    def kill(self) -> None:
        """SIGKILL: no clean-up of any kind."""
        self.end(signal.SIGKILL)


def type_into(text: bytes, *arguments: str, address: str) -> tuple[int, bytes]:
    """Run one command on a terminal of its own, into which `text` is typed; the exit code and what
    it has written."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["MUSTER_ADDRESS"] = address
        os.execv(MUSTER, [MUSTER, *arguments])
    os.write(terminal, text)
    written = b""
    with suppress(OSError):  # so a terminal ends
        while data := os.read(terminal, 4096):
            written += data
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written


def muster(
    *arguments: str, address: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, in a process of its own; in `folder`, None: here."""
    environment = {**os.environ, "MUSTER_ADDRESS": address} if address else dict(os.environ)
    return subprocess.run(
        [MUSTER, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=60,
    )
