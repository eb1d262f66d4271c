"""The committed stubs are what proto/ says, made by a compiler that the runtime loads."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted((ROOT / "scheduler" / "v1").glob("*_pb2.py"))
PROTOS = sorted((ROOT / "proto" / "scheduler" / "v1").glob("*.proto"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_stubs_are_made_for_the_protobuf_that_the_solver_pins(module: Path) -> None:
    found = re.search(r"^# Protobuf Python Version: (\S+)$", module.read_text(), re.MULTILINE)
    assert found is not None
    assert found[1].startswith("6.33.")


def test_stubs_have_not_drifted() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "stubs.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


_DEFINITION = re.compile(r"^ *(message|enum|service|rpc|optional|repeated|map<|\w[\w.]* \w+ = \d)")
_ENUM_VALUE = re.compile(r"^ *[A-Z][A-Z0-9_]+ = \d+;")


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.name)
def test_everything_has_a_sentence_for_the_caller(proto: Path) -> None:
    lines = proto.read_text().splitlines()
    bare = [
        line.strip()
        for above, line in pairwise(lines)
        if (_DEFINITION.match(line) or _ENUM_VALUE.match(line))
        and not (above.strip().startswith("//") and above.rstrip().endswith("."))
    ]
    assert bare == []
