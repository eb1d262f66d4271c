"""The server that most tests here talk to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.serving import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Eight hosts, served from a store in `tmp_path`; a file with other settings has its own."""
    async with serving(tmp_path) as running:
        yield running
