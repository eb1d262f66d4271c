"""Reading a file given as text; what comes out, tersely."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from placement.fabric.tree import Fabric
from scheduler.files.fabrics import Choices, read_fabric
from scheduler.files.fabrics.build import Built
from tests.refusals import refusal

Read = Callable[..., Built]
Refused = Callable[..., str]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """read(text, form, overlay="", **choices) -> Built, from a file called `file`."""
    monkeypatch.chdir(tmp_path)

    def read_text(text: str, form: str, overlay: str = "", **choices: object) -> Built:
        Path("file").write_text(text)
        Path("overlay.yaml").write_text(overlay)
        chosen = Choices(**choices)  # type: ignore[arg-type]
        return read_fabric("file", form, "overlay.yaml" if overlay else None, chosen)

    return read_text


@pytest.fixture
def refused(read: Read) -> Refused:
    """The message with which a text is refused."""
    return partial(refusal, read)


def tree(found: Fabric) -> dict[str, str]:
    """`z0/r0` above each host, by its name."""
    paths = [[t.domains[i] for i in t.domain_by_host] for t in found.tiers]
    return {host: "/".join(column[i] for column in paths) for i, host in enumerate(found.hosts)}
