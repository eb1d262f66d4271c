"""GET /timeline: what the log of a server tells of the past, to whoever may look at the map.

    Authorization: Bearer TOKEN
    ?hours=24       so far back, or as far as the log is kept; without it as far as that

The answer is a timeline (timeline.py). It is made anew for each request, beside the server in a
thread, from the store as it is read by anybody else; one at a time, for it takes seconds where the
log is long.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from contextlib import aclosing

from google.protobuf.empty_pb2 import Empty
from starlette.requests import Request
from starlette.responses import Response

from placement import BadInput
from scheduler.console.calls import CallContext, CallFailed, Calls
from scheduler.console.connect import failed, metadata_of, peer_of
from scheduler.console.logs import stored
from scheduler.console.session import HOLD, read
from scheduler.console.timeline import timeline
from scheduler.eventlog.store import StoreError

_MOST_HOURS = 100_000
_HOUR_NS = 3_600 * 10**9


class PastOfServer:
    """Answers questions about the past of a server, from its log. `store`: the URL of its log."""

    def __init__(self, calls: Calls, store: str) -> None:
        self._calls = calls
        self._store = store
        self._making = asyncio.Lock()

    async def answer(self, request: Request) -> Response:
        hours = request.query_params.get("hours", "")
        if hours and not (hours.isascii() and hours.isdecimal() and int(hours) <= _MOST_HOURS):
            return Response(f"hours must be a whole number up to {_MOST_HOURS}\n", 400)
        context = CallContext(metadata_of(request.headers), peer_of(request))
        try:
            async with aclosing(self._calls.stream(HOLD, Empty(), context)) as session:
                who = read((await anext(session)).value)
        except CallFailed as error:
            return failed(error, context.plain_trailer)
        from_ns = time.time_ns() - int(hours) * _HOUR_NS if hours else 0
        async with self._making:
            try:
                content = await asyncio.to_thread(self._build_timeline, who.tenant, from_ns)
            except (StoreError, BadInput):
                return Response("the log of this server cannot be read now\n", 503)
        return timeline_response(content)

    def _build_timeline(self, tenant: str, from_ns: int) -> bytes:
        state, events = stored(self._store, from_ns)
        return gzip.compress(timeline(state, events, tenant, from_ns), 3)


def timeline_response(content: bytes) -> Response:
    """Answer with a timeline. `content`: compressed by gzip."""
    headers = {"content-encoding": "gzip"}
    return Response(content, media_type="application/octet-stream", headers=headers)
