"""`make conformance`: one script of calls and expected answers, by clients in three languages.

Each client gets a `muster serve` of its own, so that all see the same. Where a language, or the
gRPC of it, is not on this machine, that client is skipped and it is said why.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from scripts.stubs import IMPORTED, PROTO, describe
from tests.e2e.processes import ServerProcess

HERE = Path(__file__).resolve().parent
STEPS = HERE / "steps.json"
GO_PATH = "/usr/share/gocode"  # where Debian has Go's packages
_TOGETHER_S = 300


class Skipped(Exception):
    """This client cannot run here; the text says why."""


def python(_: Path) -> list[str]:
    """The command of the client, without its arguments."""
    return [sys.executable, str(HERE / "python" / "run.py")]


def node(folder: Path) -> list[str]:
    """Raises: Skipped."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Skipped("no node and npm here (Debian: nodejs, npm)")
    place = folder / "node"
    shutil.copytree(HERE / "node", place, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = _run(command, cwd=place)
    if done.returncode:
        raise Skipped(f"npm cannot install what it needs: {_last_line(done.stderr)}")
    return ["node", str(place / "run.js")]


def go(folder: Path) -> list[str]:
    """Raises: Skipped."""
    if shutil.which("go") is None:
        raise Skipped("no go here (Debian: golang-go)")
    packages = Path(GO_PATH, "src", "google.golang.org")
    if not all((packages / name).is_dir() for name in ("grpc", "protobuf")):
        raise Skipped("no gRPC for Go here (Debian: golang-google-grpc-dev)")
    program = folder / "conformance"
    environment = {"GO111MODULE": "off", "GOPATH": GO_PATH, "GOCACHE": str(_cache())}
    done = _run(["go", "build", "-o", str(program), "."], cwd=HERE / "go", **environment)
    if done.returncode:
        raise RuntimeError(f"the client in Go does not build:\n{done.stderr}")
    return [str(program)]


CLIENTS: dict[str, Callable[[Path], list[str]]] = {"python": python, "node": node, "go": go}


def run(client: str) -> tuple[bool, str]:
    """Whether the client saw what it should, and what it printed. Raises: Skipped."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = CLIENTS[client](folder)
        described = [str(PROTO), str(IMPORTED)]
        if client == "go":
            described = [str(folder / "scheduler.binpb")]
            describe(PROTO, Path(described[0]))
        server = ServerProcess(folder)
        server.start()
        try:
            done = _run([*command, server.address, str(STEPS), *described])
        finally:
            server.end()
        return done.returncode == 0, done.stdout + done.stderr


def _run(
    command: list[str], cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_TOGETHER_S,
    )


def _cache() -> Path:
    """Where Go keeps what it built, so that only the first build takes a minute."""
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "muster-go"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CLIENTS, help="one client")
    chosen = parser.parse_args()
    faults = 0
    for client in [chosen.only] if chosen.only else CLIENTS:
        print(f"{client}:", flush=True)
        try:
            is_right, printed = run(client)
        except Skipped as reason:
            print(f"skipped: {reason}")
            continue
        print(printed, end="", flush=True)
        faults += not is_right
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
