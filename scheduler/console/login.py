"""Sign-in at the console by an OpenID Connect issuer: GET /login says how, POST /login ends it.

    GET /login    {}                        tokens alone
                  {"label", "issuer", "authorize", "clientId", "scope"}
                  {"label", "issuer", "problem"}        the issuer has not answered
    POST /login   {"code", "verifier", "nonce"}  ->  {"idToken"}

The page goes to the issuer and comes back with a code; the server exchanges it, since the page's
policy forbids other origins, and gives the ID token to the page, which keeps it as it keeps a
token. The server keeps nothing of it. POST is for the console's own page: the browser says in
Origin whose page sends it, and there the issuer has to send its users back to.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final

import grpc
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from scheduler.access.authenticate import Authenticator
from scheduler.access.oidc.exchange import CodeGrant, exchange
from scheduler.access.oidc.id_tokens import IdTokens
from scheduler.console.calls import CallFailed
from scheduler.console.connect import failed, peer_of
from scheduler.service.errors import ApiError

_AT_ONCE = 4  # requests to the issuer
_MOST_WAITING = 32
_MOST_BYTES = 16_384
_LONGEST = 8_192
_FIELDS: Final = ("code", "verifier", "nonce")
_NOT_KEPT: Final = {"cache-control": "no-store"}

log = logging.getLogger("muster.access")


class LoginOfServer:
    """Sign-in to the console. `auth` None: callers are not asked who they are."""

    def __init__(self, auth: Authenticator | None) -> None:
        self._auth = auth
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def answer(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._exchanged(request)
        return JSONResponse(self._offer(), headers=_NOT_KEPT)

    def _offer(self) -> dict[str, str]:
        """How to sign in, besides by a token."""
        section = self._auth.section() if self._auth else None
        if self._auth is None or section is None:
            return {}
        issuer = self._auth.id_tokens.issuer(section)
        metadata = issuer.metadata()
        offer = {"label": section.shown_label, "issuer": section.issuer}
        if metadata is None:
            return {**offer, "problem": issuer.problem or "has not answered yet"}
        return {
            **offer,
            "authorize": metadata.authorization_endpoint,
            "clientId": section.client_id,
            "scope": " ".join(section.scopes),
        }

    async def _exchanged(self, request: Request) -> Response:
        origin = request.headers.get("origin")
        if origin is None or not request.headers.get("content-type", "").startswith(
            "application/json"
        ):
            return Response("for the console's own page: JSON, with its Origin\n", 403)
        if self._auth is None or self._auth.section() is None:
            return Response("this server has no sign-in but by tokens\n", 404)
        try:
            fields = await _fields(request)
            grant = CodeGrant(**fields, redirect_uri=f"{origin}/")
            text = await self._exchange_grant(self._auth.id_tokens, grant, peer_of(request))
        except CallFailed as error:
            return failed(error, ())
        return JSONResponse({"idToken": text}, headers=_NOT_KEPT)

    async def _exchange_grant(self, id_tokens: IdTokens, grant: CodeGrant, peer: str) -> str:
        """The ID token, a few at a time. Raises: CallFailed."""
        if self._waiting >= _MOST_WAITING:
            message = "too many sign in at once; try again"
            raise CallFailed(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
        self._waiting += 1
        try:
            async with self._turns:
                text, who = await asyncio.to_thread(exchange, id_tokens, grant)
        except ApiError as error:
            log.warning("refused a sign-in at %s: %s", peer, error.message)
            raise CallFailed(error.code, error.message) from None
        finally:
            self._waiting -= 1
        log.info("%s signed in at %s", who.name, peer)
        return text


async def _fields(request: Request) -> dict[str, str]:
    """Raises: CallFailed."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > _MOST_BYTES:
            raise CallFailed(grpc.StatusCode.RESOURCE_EXHAUSTED, "the request is too long")
    try:
        said: Any = json.loads(content)
    except (ValueError, RecursionError):
        said = None
    fields: dict[str, Any] = (
        {key: said.get(key) for key in _FIELDS} if isinstance(said, dict) else {}
    )
    if not fields or not all(map(_is_word, fields.values())):
        message = f"must be an object with the texts {', '.join(_FIELDS)}"
        raise CallFailed(grpc.StatusCode.INVALID_ARGUMENT, message)
    return fields


def _is_word(value: Any) -> bool:
    is_text = isinstance(value, str) and 0 < len(value) <= _LONGEST
    return is_text and value.isascii() and value.isprintable()
