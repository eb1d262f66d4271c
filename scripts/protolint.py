"""Lint proto/, and compare it with a REF of this repository for changes that break clients.

    python -m scripts.protolint [REF]

buf reads what protoc made: the imports come with a Python package, not from buf's registry.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from scripts.stubs import PACKAGE, PROTO, ROOT, describe


def buf(*arguments: str | Path) -> int:
    """Run buf on `scheduler.v1` alone, and return its exit code."""
    options = ["--config", PROTO / "buf.yaml", "--path", PACKAGE]
    program = Path(sys.executable).parent / "buf"
    return subprocess.run([program, *arguments, *options]).returncode


def unpack(ref: str, folder: Path) -> None:
    """Write proto/ as it is at `ref` below `folder`."""
    done = subprocess.run(["git", "archive", ref, "proto"], cwd=ROOT, capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode())
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        here = folder / "here.binpb"
        describe(PROTO, here)
        if (failed := buf("lint", here)) or not arguments:
            return failed
        unpack(arguments[0], folder)
        there = folder / "there.binpb"
        describe(folder / "proto", there)
        return buf("breaking", here, "--against", there)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
