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
