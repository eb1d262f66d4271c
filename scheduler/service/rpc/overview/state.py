"""The whole state of a cluster, for a copy of it that goes on elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from scheduler.eventlog import snapshots
from scheduler.eventlog.store import EndedQuery
from scheduler.service.backend import Context, Servicer
from scheduler.v1 import service_pb2

PART: Final = 512 * 1024  # bytes of one message, about
_PAGE: Final = 500  # ended jobs that are read at once
_PAUSE_S: Final = 0.0005


class StateServicer(Servicer):
    async def ExportState(
        self, request: service_pb2.ExportStateRequest, context: Context
    ) -> AsyncIterator[service_pb2.ExportStateResponse]:
        writer = self._backend.writer
        state, now_ns, last_ns = writer.state, writer.now_ns(), writer.last_ns
        body = await asyncio.to_thread(snapshots.encode, state, last_ns, _pause)
        first = service_pb2.ExportStateResponse(
            version=state.version,
            options=msgspec.json.encode(writer.options).decode(),
            dropped_jobs=await asyncio.to_thread(writer.ended.dropped),
        )
        first.create_time.FromNanoseconds(now_ns)
        yield first
        for at in range(0, len(body), PART):
            yield service_pb2.ExportStateResponse(snapshot=body[at : at + PART])
        after: tuple[Any, ...] = ()
        while True:
            query = EndedQuery(state.version, _PAGE, order=(("version", False),), after=after)
            rows = await asyncio.to_thread(writer.ended.rows, query)
            for part in _parts(row.body for row in rows):
                yield service_pb2.ExportStateResponse(ended_jobs=part)
            if len(rows) < _PAGE:
                return
            after = (rows[-1].version,)


def _pause() -> None:
    time.sleep(_PAUSE_S)  # Python runs one thing at a time, and calls wait


def _parts(bodies: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Several in a message, as long as they are small."""
    part, size = list[bytes](), 0
    for body in bodies:
        if part and size + len(body) > PART:
            yield part
            part, size = [], 0
        part.append(body)
        size += len(body)
    if part:
        yield part
