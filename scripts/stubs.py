"""Generate scheduler/v1, docs/api.md and docs/job-file.md from proto/.

With --check, fail when the committed ones differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from google.api import annotations_pb2

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
PACKAGE = Path("scheduler/v1")
IMPORTED = Path(annotations_pb2.__file__).parents[2]


def protoc(proto: Path, *options: str) -> None:
    """Run protoc on the files below `proto`. Ends the process with what it says is wrong."""
    sources = sorted(str(p.relative_to(proto)) for p in (proto / PACKAGE).glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}", f"-I{IMPORTED}"]
    # protoc finds the mypy plug-ins on PATH; they lie beside this interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [*command, *options, *sources],
        cwd=proto,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)


def describe(proto: Path, out: Path) -> None:
    """Write the descriptors of the files below `proto` and of what they import, with comments."""
    protoc(proto, "--include_imports", "--include_source_info", f"--descriptor_set_out={out}")


def generate(target: Path) -> None:
    """Write the stubs below `target`; imports then read `scheduler.v1.job_pb2`."""
    kinds = ("python", "grpc_python", "mypy", "mypy_grpc")
    protoc(PROTO, *(f"--{kind}_out={target}" for kind in kinds))


def stubs(root: Path) -> dict[str, str]:
    """Content of the generated files below `root`, by name."""
    files = [*(root / PACKAGE).glob("*_pb2*.py"), *(root / PACKAGE).glob("*_pb2*.pyi")]
    return {file.name: file.read_text() for file in files}


def drift() -> list[str]:
    """Names of stubs that are missing, left over or not what proto/ says."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        wanted, present = stubs(Path(scratch)), stubs(ROOT)
    return sorted(n for n in wanted.keys() | present.keys() if wanted.get(n) != present.get(n))


def main(arguments: list[str]) -> int:
    if arguments != ["--check"]:
        generate(ROOT)
        return docs()
    differing = drift()
    if differing:
        print("stubs differ from proto/; run `make stubs`:", *differing, sep="\n  ")
    return 1 if differing else docs("--check")


def docs(*arguments: str) -> int:
    """The pages about the API and the job file, by processes of their own: they load the stubs."""
    code = 0
    for page in ("apidocs", "jobdocs"):
        command = [sys.executable, "-m", f"scripts.{page}", *arguments]
        before = os.environ.get("PYTHONPATH", "")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), before])}
        code |= subprocess.run(command, cwd=ROOT, env=environment).returncode
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
