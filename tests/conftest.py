"""Options and profiles that all tests share."""

import gc
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.postgres import Cluster, NoPostgres, cluster

# On a desk every run tries new examples; in CI a failure must be the change's own.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_configure() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would all that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: looking through it for garbage again and
    again takes an eighth of the time of unit tests."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the golden scripts printed into them; commit a changed trace"
        " only when its cause is understood and wanted",
    )


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """A command of muster that a test calls puts its options and contexts into the environment of
    its process, which is that of all tests."""
    before = _own()  # read as bytes: decoding all of it costs a tenth of a small test
    yield
    for name in _own().keys() - before:
        del os.environb[name]
    os.environb.update(before)


def _own() -> dict[bytes, bytes]:
    return {name: text for name, text in os.environb.items() if name.startswith(b"MUSTER_")}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A real PostgreSQL; tests that need one are skipped, saying so, where none is."""
    try:
        with cluster() as running:
            yield running
    except NoPostgres as error:
        pytest.skip(str(error))


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    """The URL of an empty database."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def axe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, installed once and kept beside pytest's cache."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm, for axe-core (Debian: npm)")
    cache = getattr(request.config, "cache", None)
    place = cache.mkdir("axe-core-4.14.1") if cache else tmp_path_factory.mktemp("axe")
    source: Path = place / "node_modules" / "axe-core" / "axe.min.js"
    if not source.is_file():
        shutil.copytree(Path(__file__).parent / "axe", place, dirs_exist_ok=True)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"npm cannot install axe-core: {done.stderr.strip().splitlines()[-1:]}")
    return source.read_text(encoding="utf-8")
