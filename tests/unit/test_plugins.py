"""Readers of other programs' files come from entry points, also those of other packages."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from scheduler.files import plugins
from scheduler.files.fabrics import FORMATS
from scheduler.files.plugins import IMPORTERS, importer
from tests.refusals import refusal


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
    told = refusal(importer, "bad")
    assert "bad: nowhere:x cannot be loaded: No module named" in told
    assert "no reader of the group muster.importers" in refusal(importer, "other")
