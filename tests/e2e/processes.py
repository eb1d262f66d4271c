"""`muster` as its users run it: separate processes, real files, real ports."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from tests.build import fabric_spec
from tests.ports import free_port

MUSTER = str(Path(sys.executable).with_name("muster"))


class ServerProcess:
    """`muster serve` on one store and one port, started as often as wished."""

    def __init__(self, folder: Path, store: str = "") -> None:
        self.store = folder / "muster.db"
        self.url = store or f"sqlite:///{self.store}"
        self.address = f"127.0.0.1:{free_port()}"
        self._fabric = folder / "fabric.yaml"
        self._fabric.write_text(yaml.safe_dump(fabric_spec(2, 4, 2)))
        self._process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        """Returns when the server has said that it is ready."""
        command = [MUSTER, "serve", "--fabric", str(self._fabric)]
        command += ["--store", self.url, "--listen", self.address, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert f"on {self.address}" in line, line

    def kill(self) -> None:
        """SIGKILL: no clean-up of any kind."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        assert process.stdout is not None
        process.stdout.close()
        return process.wait(timeout=60)


def muster(*arguments: str, address: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command to its end, in a process of its own."""
    environment = {**os.environ, "MUSTER_ADDRESS": address} if address else dict(os.environ)
    return subprocess.run(
        [MUSTER, *arguments], capture_output=True, text=True, env=environment, timeout=60
    )
