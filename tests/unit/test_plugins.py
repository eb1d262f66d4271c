"""Readers of other programs' files come from entry points, also those of other packages."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from scheduler.files import plugins
from scheduler.files.errors import InputError
from scheduler.files.fabrics import FORMATS
from scheduler.files.plugins import IMPORTERS, importer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def _fresh() -> Iterator[None]:
    plugins._entries.cache_clear()
    yield
    plugins._entries.cache_clear()


def test_the_package_installs_its_own_readers() -> None:
    """Where this fails, the environment is older than pyproject.toml: `make env`."""
    assert {"job", "ports", "dcgm-json"} <= IMPORTERS.keys()
    assert {"slurm", "ibnetdiscover", "kubernetes"} <= FORMATS.keys()


@pytest.mark.usefixtures("_fresh")
def test_a_reader_of_another_package_is_found_and_a_broken_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def installed(group: str) -> list[EntryPoint]:
        return [EntryPoint("odd", "json:loads", group), EntryPoint("bad", "nowhere:x", group)]

    monkeypatch.setattr(plugins, "entry_points", installed)
    read: Any = importer("odd")
    assert read("[1]") == [1]
    with pytest.raises(InputError, match="bad: nowhere:x cannot be loaded: No module named"):
        importer("bad")
    with pytest.raises(InputError, match=r"no reader of the group muster\.importers .* as other"):
        importer("other")


def test_the_scheduler_names_no_reader() -> None:
    named = [
        path
        for package in ("scheduler", "simulator")
        for path in (ROOT / package).rglob("*.py")
        if "import importers" in (text := path.read_text("utf-8")) or "from importers" in text
    ]
    assert named == []
