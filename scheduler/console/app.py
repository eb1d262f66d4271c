"""The console as an ASGI application: pages, calls, and who may send what from a browser.

A browser sends requests on behalf of any page that it shows. So a page of another origin is
refused, whatever it asks for, and on loopback a name that is not this machine's as well: by a name
of his own that points at 127.0.0.1 a stranger's page would count as ours (DNS rebinding).
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.access.addresses import is_loopback
from scheduler.console.connect import ConnectService

STATIC: Final = Path(str(files("scheduler.console") / "static"))
_INLINE = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)


def application(services: list[ConnectService], routes: list[Route], is_local: bool) -> Starlette:
    """Make the web application of the console. `routes`: besides the pages and the services.
    `is_local`: it listens on loopback."""
    calls = [
        Route(each.prefix + "{method}", each.answer, methods=["GET", "POST"]) for each in services
    ]
    pages = Mount("/", StaticFiles(directory=STATIC, html=True))
    return Starlette(
        routes=[*calls, *routes, pages],
        middleware=[Middleware(_BrowserGuard, is_local=is_local, policy=content_policy())],
    )


def content_policy() -> str:
    """The Content-Security-Policy: nothing but what the console itself serves. The import map of
    the page, which may not lie in a file of its own, is named by its hash."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    digests = (hashlib.sha256(text.encode()).digest() for text in _INLINE.findall(page))
    inline = "".join(f" 'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src 'self'{inline}; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class _BrowserGuard:
    """Refuses what other pages send, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, is_local: bool, policy: str) -> None:
        self._app = app
        self._is_local = is_local
        self._headers = {
            "content-security-policy": policy,
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-cache",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for key, value in self._headers.items():
                    headers.setdefault(key, value)
            await send(message)

        if refusal := self._refusal(Headers(scope=scope)):
            answer = PlainTextResponse(refusal + "\n", 403)
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> str:
        """Why the request is none of this console's pages or of a program; "" when it is."""
        host = headers.get("host", "")
        if self._is_local and not is_loopback(_name(host)):
            return f"this console listens on loopback, and is not called {host[:80]!r}"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return f"requests from pages of {origin[:80]!r} are refused"
        if headers.get("sec-fetch-site", "none") == "cross-site" and (
            headers.get("sec-fetch-mode") != "navigate"
        ):
            return "requests from pages of other sites are refused"
        return ""


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
