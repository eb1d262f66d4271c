"""The documentation as a site, built as `make docs` does, in a real browser."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import AXE, HAS_BROWSER, MISSING, Page, browsing

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_BROWSER, reason=MISSING)]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with browsing() as page:
        yield page


@pytest.mark.parametrize(
    ("words", "page"),
    [("install", "operations"), ("job file", "job-file"), ("spares", "reliability")],
)
def test_search_finds_the_page_of_a_task_first(
    site: str, browser: Page, words: str, page: str
) -> None:
    browser.resize(1_280, 900)
    browser.go("about:blank")
    browser.go(f"{site}/?q={words.replace(' ', '+')}")
    browser.run("document.querySelector('[data-md-toggle=search]').checked = true")
    first = "document.querySelector('.md-search-result__link')"
    assert browser.until(f"{first} && {first}.pathname") == f"/{page}/"


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_pages_have_no_violation_of_accessibility(
    site: str, browser: Page, axe: str, scheme: str
) -> None:
    for place in ("", "quickstart/", "operations/", "console/", "commands/"):
        browser.go(f"{site}/{place}")
        browser.run("document.body.dataset.mdColorScheme = arguments[0]", scheme)
        browser.run(axe)
        assert browser.run(AXE) == [], place
