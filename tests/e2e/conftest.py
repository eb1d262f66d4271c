"""Fixtures of several files."""

import pytest

from tests.e2e.shell import Shell


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A shell without a server."""
    return Shell(monkeypatch, capsys)
