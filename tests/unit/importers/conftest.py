"""Imports of files that the tests write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from importers.jobs.draft import Draft
from importers.jobs.load import Given, import_job
from scheduler.files.errors import InputError

Importing = Callable[..., Draft]
Refusing = Callable[..., list[str]]


def assert_facts(draft: Draft, facts: str) -> None:
    """The request of a checked draft has the values of `dp=64 dtype=bf16`: fields of its
    parallelism, model, batch or training."""
    request = draft.checked().request
    sections = (request.parallelism, request.model, request.batch, request.training)
    wanted = dict(pair.split("=") for pair in facts.split())
    found = {
        name: next(str(getattr(part, name)) for part in sections if hasattr(part, name))
        for name in wanted
    }
    assert found == wanted


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importing:
    """imported("run.sh", text, gpus=8, keys={...}, environment={...})"""
    monkeypatch.chdir(tmp_path)

    def run(name: str, text: str, **given: Any) -> Draft:
        Path(name).write_text(text)
        return import_job(name, None, Given(**given))

    return run


@pytest.fixture
def refused(imported: Importing) -> Refusing:
    """The lines of the error."""

    def run(name: str, text: str, **given: Any) -> list[str]:
        with pytest.raises(InputError) as caught:
            imported(name, text, **given)
        return str(caught.value).splitlines()

    return run
