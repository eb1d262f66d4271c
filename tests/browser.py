"""A headless chromium, driven over WebDriver with nothing but the standard library."""

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

# The rules of WCAG 2, and axe's own for landmarks, headings and regions.
AXE = "return axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v =>"
AXE += " v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ')))"
DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "needs chromium and chromedriver (Debian: apt install chromium chromium-driver)"
HAS_BROWSER = bool(DRIVER and BROWSER)

# Direct connections only: the proxy of the environment is for the outside.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Page:
    """A page that is open. `requests`: every address that it has asked for; `errors`: what its
    console complains about; both as far as `listen` has been called."""

    def __init__(self, session: str) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._session = session

    def go(self, address: str) -> None:
        """Open a page, with what it loads at once."""
        _post(f"{self._session}/url", {"url": address})
        self.listen()

    def listen(self) -> None:
        """Take up what was asked for and complained about since the last time."""
        logs = _post(f"{self._session}/se/log", {"type": "performance"})
        errors = _post(f"{self._session}/se/log", {"type": "browser"})
        self.requests += _requests(logs)
        self.errors += [entry["message"] for entry in errors]

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript function's body, of a promise what it is settled to."""
        body = {"script": script, "args": list(arguments)}
        return _post(f"{self._session}/execute/sync", body)

    def until(self, condition: str, timeout_s: float = 30.0) -> Any:
        """The value of an expression once it is true. Raises: AssertionError with the page's text
        when it never is."""
        end_s = time.monotonic() + PATIENCE * timeout_s
        while not (value := self.run(f"return {condition}")):
            if time.monotonic() > end_s:
                text = self.run("return document.body.innerText")
                raise AssertionError(f"{condition} never became true; the page says:\n{text}")
            time.sleep(0.02)
        return value

    def type(self, keys: str) -> None:
        """Press keys, one after the other, on what has the focus."""
        focused = _call("GET", f"{self._session}/element/active")
        element = next(iter(focused.values()))
        _post(f"{self._session}/element/{element}/value", {"text": keys})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the Chrome DevTools Protocol."""
        body = {"cmd": command, "params": parameters}
        return _post(f"{self._session}/goog/cdp/execute", body)

    def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        """The size of the page, in its own pixels."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )

    def shade(self, *, is_dark: bool) -> None:
        """What the page is told that its reader prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])

    def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(_call("GET", f"{self._session}/screenshot"))


@contextmanager
def opened(address: Path | str, *, is_dark: bool = False) -> Iterator[Page]:
    """The file, or the address, in a browser of its own."""
    with browsing(is_dark=is_dark) as page:
        page.go(address if isinstance(address, str) else address.resolve().as_uri())
        yield page


@contextmanager
def browsing(*, is_dark: bool = False) -> Iterator[Page]:
    """A browser with an empty page."""
    with _driver() as address:
        made = _post(f"{address}/session", {"capabilities": {"alwaysMatch": _options(is_dark)}})
        session = f"{address}/session/{made['sessionId']}"
        try:
            yield Page(session)
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
    """Raises: AssertionError with what the driver says, when the browser cannot do it."""
    request = urllib.request.Request(address, body, method=method)
    try:
        with _open(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        said = json.load(error)["value"]
        raise AssertionError(f"{said['error']}: {said['message']}") from None
