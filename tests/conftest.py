"""Options and profiles that all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# On a desk every run tries new examples; in CI a failure must be the change's own.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the golden scripts printed into them; commit a changed trace"
        " only when its cause is understood and wanted",
    )
