"""A headless chromium, driven over WebDriver with nothing but the standard library."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "needs chromium and chromedriver (Debian: apt install chromium chromium-driver)"
HAS_BROWSER = bool(DRIVER and BROWSER)

# Direct connections only: the proxy of the environment is for the outside.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@dataclass(frozen=True)
class Page:
    """A page that is open. `requests`: every address that it asked for; `errors`: what its
    console complains about."""

    session: str
    requests: list[str]
    errors: list[str]

    def run(self, script: str) -> Any:
        """The value of a JavaScript function's body."""
        return _post(f"{self.session}/execute/sync", {"script": script, "args": []})


@contextmanager
def opened(path: Path, *, is_dark: bool = False) -> Iterator[Page]:
    """The file in a browser of its own."""
    with _driver() as address:
        found = _post(f"{address}/session", {"capabilities": {"alwaysMatch": _options(is_dark)}})
        session = f"{address}/session/{found['sessionId']}"
        try:
            _post(f"{session}/url", {"url": path.resolve().as_uri()})
            logs = _post(f"{session}/se/log", {"type": "performance"})
            errors = _post(f"{session}/se/log", {"type": "browser"})
            yield Page(session, _requests(logs), [entry["message"] for entry in errors])
        finally:
            _call("DELETE", session)


def _options(is_dark: bool) -> dict[str, Any]:
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1100,900"]
    if is_dark:
        arguments.append("--blink-settings=preferredColorScheme=0")
    return {
        "goog:chromeOptions": {"args": arguments, "binary": BROWSER},
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }


def _requests(logs: list[dict[str, str]]) -> list[str]:
    messages = (json.loads(entry["message"])["message"] for entry in logs)
    sent = (m for m in messages if m["method"] == "Network.requestWillBeSent")
    return [message["params"]["request"]["url"] for message in sent]


@contextmanager
def _driver() -> Iterator[str]:
    """Its address, once it listens on a port that it chose itself."""
    assert DRIVER is not None
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"started successfully on port (\d+)", line):
                    yield f"http://127.0.0.1:{found[1]}"
                    return
            raise AssertionError("chromedriver ended before it listened")
        finally:
            process.terminate()


def _post(address: str, body: dict[str, Any]) -> Any:
    return _call("POST", address, json.dumps(body).encode())


def _call(method: str, address: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(address, body, method=method)
    with _open(request, timeout=60) as answer:
        return json.load(answer)["value"]
