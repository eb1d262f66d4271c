"""The committed stubs are what proto/ says, made by a compiler that the runtime loads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import apidocs
from tests.cases import case

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted((ROOT / "scheduler" / "v1").glob("*_pb2.py"))


def test_stubs_are_made_for_the_protobuf_that_the_solver_pins() -> None:
    for module in MODULES:
        with case(module=module):
            found = re.search(
                r"^# Protobuf Python Version: (\S+)$", module.read_text(), re.MULTILINE
            )
            assert found is not None
            assert found[1].startswith("6.33.")


@pytest.mark.slow
def test_stubs_have_not_drifted() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "stubs.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_has_a_sentence_for_the_caller() -> None:
    said = dict(apidocs.entries())
    assert len(said) > 300
    bare = [name for name, text in said.items() if not text.endswith(".")]
    assert bare == []
