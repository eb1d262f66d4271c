"""Who looks at a console: a call that lasts as long as its stream of map changes.

The stream itself is made once for all who may see the same. This call takes its reader through the
interceptors: token and role are checked when it begins and every few seconds, and it counts as an
open stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.wrappers_pb2 import StringValue

from scheduler.access.methods import CONSOLE
from scheduler.identity import Caller, Role, caller
from scheduler.service.backend import Backend

HOLD = CONSOLE + "HoldSession"
CHECK_S = 2.0

Context = grpc.aio.ServicerContext[Any, Any]


class Session:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def HoldSession(self, request: Empty, context: Context) -> AsyncIterator[StringValue]:
        """Yield who the caller is, again and again. Ends when the caller may look no more."""
        _ = self._backend.writer  # none while the server starts
        while True:
            yield StringValue(value=written(caller()))
            await asyncio.sleep(CHECK_S)

    def register(self, registry: Any) -> None:
        """Register the method as generated code does."""
        handler = grpc.unary_stream_rpc_method_handler(
            self.HoldSession, Empty.FromString, StringValue.SerializeToString
        )
        service, _, method = HOLD.strip("/").rpartition("/")
        registry.add_registered_method_handlers(service, {method: handler})


def written(who: Caller) -> str:
    return json.dumps({"name": who.name, "role": who.role.name.lower(), "tenant": who.tenant})


def read(text: str) -> Caller:
    """Decode what `written` encodes."""
    fields = json.loads(text)
    return Caller(fields["name"], Role[fields["role"].upper()], fields["tenant"])
