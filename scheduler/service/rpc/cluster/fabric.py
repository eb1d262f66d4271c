"""Calls about the fabric: read it, and put another one in its place."""

from __future__ import annotations

import asyncio

from muster.structs import replace
from placement import BadInput
from scheduler.core import Rejected, State
from scheduler.core.admission.fabric import FabricChange, fabric_change, stale_fabric
from scheduler.core.admission.idempotency import earlier
from scheduler.core.model.commands import ChangeFabric
from scheduler.files.errors import InputError
from scheduler.service.backend import Context, Servicer
from scheduler.service.errors import ApiError, invalid, invalid_input, rejected
from scheduler.v1 import fabric_pb2, service_pb2
from scheduler.wire.cluster.fabric import change_from_proto, change_to_proto, fabric_to_proto


class FabricServicer(Servicer):
    async def GetFabric(
        self, request: service_pb2.GetFabricRequest, context: Context
    ) -> fabric_pb2.Fabric:
        state = self._backend.writer.state
        return await self._backend.reads.make(_fabric, state, request.with_file)

    async def ApplyFabric(
        self, request: service_pb2.ApplyFabricRequest, context: Context
    ) -> service_pb2.ApplyFabricResponse:
        state = self._backend.writer.state
        if not request.validate_only and (done := earlier(state, request.request_id)):
            if isinstance(done.answer, Rejected):
                raise rejected(done.answer)
            return await asyncio.to_thread(_unchanged, state)
        command, change = await self._backend.questions.ask(_read, state, request)
        if request.validate_only:
            if refusal := stale_fabric(state, command):
                raise rejected(refusal)
            supposed = replace(state, fabric=change.after)
            return await asyncio.to_thread(change_to_proto, supposed, change)
        state = await self._backend.run(command)
        return await asyncio.to_thread(change_to_proto, state, change)


def _fabric(state: State, with_file: bool) -> fabric_pb2.Fabric:
    return fabric_to_proto(state, with_file=with_file)


def _unchanged(state: State) -> service_pb2.ApplyFabricResponse:
    """The answer to a request that was carried out before: its renames fit no more."""
    same = ChangeFabric(state.built_fabric.spec)
    return change_to_proto(state, fabric_change(state, same))


def _read(
    state: State, request: service_pb2.ApplyFabricRequest
) -> tuple[ChangeFabric, FabricChange]:
    """Raises: ApiError."""
    try:
        command = change_from_proto(request)
        return command, fabric_change(state, command)
    except InputError as error:
        raise _at_file(error) from None
    except BadInput as error:
        raise invalid(error.field, error.message) from None


def _at_file(error: InputError) -> ApiError:
    refusal = invalid_input(error, "file.")
    refusal.violations = tuple((f.removesuffix("."), text) for f, text in refusal.violations)
    return refusal
