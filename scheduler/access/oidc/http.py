"""Requests to an issuer: JSON within a time and a size, over TLS, without redirects.

They block, so they are made in threads. The proxy of the environment (HTTPS_PROXY, NO_PROXY) is
used, but for an issuer on this machine.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from scheduler.access.addresses import is_loopback
from scheduler.access.oidc.section import trust
from scheduler.files.errors import InputError, one_line

TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
_PART_BYTES = 1 << 16
_LONGEST_WORDS = 200


class IssuerFailed(Exception):
    """The issuer did not answer as it should; the message says how."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the answer stays an error."""


def ask(
    url: str,
    ca: str | None,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Send a GET, or with `form` a POST, and return the JSON object of the answer. Raises:
    IssuerFailed."""
    body = urlencode(form).encode() if form is not None else None
    sent = {"Accept": "application/json", "User-Agent": "muster", **(headers or {})}
    end_s = time.monotonic() + TIMEOUT_S
    try:
        opener = _opener(url, ca)
        request = urllib.request.Request(url, body, sent)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            content = _read(answer, end_s)
    except urllib.error.HTTPError as error:
        with error:
            raise IssuerFailed(_error_text(error)) from None
    except (OSError, http.client.HTTPException, ValueError, InputError) as error:
        raise IssuerFailed(_why(error)) from None
    return _object(content)


def _opener(url: str, ca: str | None) -> urllib.request.OpenerDirector:
    """Raises: InputError for a `ca` that will not do."""
    handlers: list[Any] = [_NoRedirects(), urllib.request.HTTPSHandler(context=trust(ca))]
    if is_loopback(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _read(answer: Any, end_s: float) -> bytes:
    """Raises: IssuerFailed for what is too long, or comes too slowly."""
    content = bytearray()
    while part := answer.read1(_PART_BYTES):
        content += part
        if len(content) > _MOST_BYTES:
            raise IssuerFailed("the answer is longer than 1 MiB")
        if time.monotonic() > end_s:
            raise IssuerFailed(f"the answer took longer than {TIMEOUT_S:g} s")
    return bytes(content)


def _why(error: Exception) -> str:
    """The reason of an error, in the system's words where there are any."""
    reason = getattr(error, "reason", None) or error  # of a URLError it is an error itself
    words = getattr(reason, "strerror", None) or str(reason) or type(error).__name__
    return one_line(str(words))[:_LONGEST_WORDS]


def _object(content: bytes) -> dict[str, Any]:
    """Raises: IssuerFailed."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise IssuerFailed("the answer is not a JSON object")
    return value


def _error_text(error: urllib.error.HTTPError) -> str:
    """The status, and what OAuth's error says, if it is one."""
    words = f"HTTP status {error.code}"
    if 300 <= error.code < 400:
        return f"{words}, a redirect, which is not followed"
    try:
        said = _object(_read(error, time.monotonic() + TIMEOUT_S))
    except (OSError, http.client.HTTPException, IssuerFailed):
        return words
    texts = [said[key] for key in ("error", "error_description") if isinstance(said.get(key), str)]
    return f"{words} ({one_line(': '.join(texts))[:_LONGEST_WORDS]})" if texts else words
