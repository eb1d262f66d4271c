"""Generate scheduler/v1 and docs/api.md from proto/.

With --check, fail when the committed ones differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
PACKAGE = Path("scheduler/v1")


def generate(target: Path) -> None:
    """Write the stubs below `target`; imports then read `scheduler.v1.job_pb2`."""
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    sources = sorted(str(p.relative_to(PROTO)) for p in (PROTO / PACKAGE).glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", *outputs, *sources]
    # protoc finds the mypy plug-ins on PATH; they lie beside this interpreter.
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=PROTO, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def stubs(root: Path) -> dict[str, str]:
    """Content of the generated files below `root`, by name."""
    files = [*(root / PACKAGE).glob("*_pb2*.py"), *(root / PACKAGE).glob("*_pb2*.pyi")]
    return {file.name: file.read_text() for file in files}


def drift() -> list[str]:
    """Names of stubs that are missing, left over or not what proto/ says."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        wanted, found = stubs(Path(scratch)), stubs(ROOT)
    return sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))


def main(arguments: list[str]) -> int:
    if arguments != ["--check"]:
        generate(ROOT)
        return docs()
    differing = drift()
    if differing:
        print("stubs differ from proto/; run `make stubs`:", *differing, sep="\n  ")
    return 1 if differing else docs("--check")


def docs(*arguments: str) -> int:
    """The page about the API, by a process of its own: it loads the stubs."""
    command = [sys.executable, "-m", "scripts.apidocs", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
