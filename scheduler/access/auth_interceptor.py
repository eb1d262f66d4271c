"""The interceptor before every method: who calls, may they, is it too much, and what they see.

    identify -> role (methods.py) -> rate and streams (limits.py) -> own jobs (tenant_filter.py)

It acts on descriptors alone, so that a new method needs its line in the table and
nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from hashlib import blake2b
from typing import Any

from google.protobuf.message import Message

from scheduler.access.auth_file.entries import EVERY_TENANT
from scheduler.access.authenticate import Context, Identify, anybody, peer_of
from scheduler.access.limits import Rate, Streams, check_sizes
from scheduler.access.methods import METHODS, REFLECTION, MethodRule
from scheduler.access.options import CallLimits
from scheduler.access.tenant_filter import TenantFilter, is_map
from scheduler.core.model.requests import RequestId
from scheduler.identity import ANYBODY, Caller, act_for
from scheduler.service.errors import ApiError, denied, error_boundary, undecodable
from scheduler.service.interceptors import Handler, Undecodable, WrappingInterceptor, wrapped
from scheduler.service.required import check_required

_QUIET_S = 60.0
_LOOK_S = 2.0  # at whether a caller who says nothing still may

log = logging.getLogger("muster.access")


class AuthInterceptor(WrappingInterceptor):
    """Refuses calls that the caller may not make. `identify`: returns the caller; `anybody` where
    callers are not asked who they are."""

    def __init__(
        self,
        tenant_filter: TenantFilter,
        limits: CallLimits,
        clock: Callable[[], float],
        identify: Identify = anybody,
    ) -> None:
        super().__init__()
        self._tenant_filter = tenant_filter
        self._limits = limits
        self._identify = identify
        self._streams = Streams(limits)
        self._rate = Rate(limits, clock)
        self._garbled = _GarbledLog(clock)

    def wrap(self, method: str, handler: Handler) -> Handler:
        return wrapped(handler, lambda inner: self._around(method, inner))

    def _around(self, method: str, inner: Any) -> Any:
        """`inner` with the checks before and behind it, of the same kind as `inner`."""
        if inspect.isasyncgenfunction(inner):
            return self._around_stream(method, inner)

        async def call(request: Any, context: Context) -> Any:
            async with error_boundary(context):
                who = self._admitted(method, context, request)
                answer = await inner(request, context)
                if answer is not None:  # health answers streams by writing
                    self._tenant_filter.clean(who, answer)
                return answer

        return call

    def _around_stream(self, method: str, inner: Any) -> Any:
        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            async with error_boundary(context):
                who = self._admitted(method, context, request)
                if not isinstance(request, Message):
                    request = self._decoded(request, method, who, context)
                may_change = self._identify is not anybody
                with self._streams.one_more(who.name):
                    async with aclosing(inner(request, context)) as answers:
                        async for answer in answers:
                            if may_change:
                                self._check_still(method, context, who)
                            self._tenant_filter.clean(who, answer)
                            yield answer

        return stream

    def _admitted(self, method: str, context: Context, request: Any) -> Caller:
        """From here on the task acts for the caller. Raises: ApiError, which the log has."""
        who = None
        try:
            rule = self._rule(method)
            who = self._caller(rule, context)
            _check_role(rule, who)
            if rule.role is not None:
                self._rate.take(who.name)
            if isinstance(request, Undecodable):
                self._garbled.add(method, peer_of(context))
                raise undecodable(request.reason)
            if isinstance(request, Message):  # and no stream of them
                self._check(rule, who, request)
        except ApiError as refused:
            if not isinstance(request, Undecodable):
                _log_refusal(method, who, context, refused)
            raise
        act_for(who)
        return who

    def _check(self, rule: MethodRule, who: Caller, request: Message) -> None:
        """Hold a request to what `who` may ask for. Raises: ApiError."""
        check_sizes(self._limits, request)
        check_required(request)
        self._tenant_filter.check(rule, who, request)
        _own_request_ids(request, who)

    async def _decoded(
        self, requests: AsyncIterator[Any], method: str, who: Caller, context: Context
    ) -> AsyncIterator[Any]:
        """Pass on a stream of requests, of which the first says what is asked for. Raises: ApiError
        at one that is no message, and soon after the caller may send none any more."""
        is_first, waiting = True, asyncio.ensure_future(anext(requests, None))
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=_LOOK_S)
                if not is_first and self._identify is not anybody:
                    self._check_still(method, context, who)
                if not done:
                    continue
                if (request := waiting.result()) is None:
                    return
                if isinstance(request, Undecodable):
                    self._garbled.add(method, peer_of(context))
                    raise undecodable(request.reason)
                if is_first and method != REFLECTION:
                    self._check(self._rule(method), who, request)
                is_first = False
                yield request
                waiting = asyncio.ensure_future(anext(requests, None))
        finally:
            waiting.cancel()

    def _rule(self, method: str) -> MethodRule:
        """Raises: ApiError when callers are asked who they are, and nobody may call it."""
        rule = METHODS.get(method)
        if rule is None and self._identify is not anybody:
            raise denied("nobody may call this method")
        return rule or MethodRule(None)

    def _caller(self, rule: MethodRule, context: Context) -> Caller:
        return ANYBODY if rule.role is None else self._identify(context)

    def _check_still(self, method: str, context: Context, who: Caller) -> None:
        """A token may be revoked, a role taken away or a tenant changed while a stream runs, which
        goes on sending what the caller of its begin may see. Raises: ApiError."""
        rule = self._rule(method)
        now = self._caller(rule, context)
        _check_role(rule, now)
        if now.tenant != who.tenant:
            of, before = now.tenant or EVERY_TENANT, who.tenant or EVERY_TENANT
            raise denied(
                f"{now.name} is of tenant {of} now, not of {before}: open the stream again"
            )


class _GarbledLog:
    """One line a minute at most, however many messages cannot be decoded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._next_s = float("-inf")

    def add(self, method: str, peer: str) -> None:
        self._count += 1
        if self._clock() < self._next_s:
            return
        words = "messages that cannot be decoded: %d, the last one for %s from %s"
        log.warning(words, self._count, method.rpartition("/")[2], peer)
        self._count, self._next_s = 0, self._clock() + _QUIET_S


def _check_role(rule: MethodRule, who: Caller) -> None:
    if rule.role is not None and who.role < rule.role:
        needed, has = rule.role.name.lower(), who.role.name.lower()
        raise denied(f"{who.name} is a {has}; this needs the role {needed}")


def _own_request_ids(request: Message, who: Caller) -> None:
    """Make request ids the caller's own, so that one that somebody else used is new to `who`, with
    a digest of the request, so that the same one with another request is noticed."""
    for field, value in request.ListFields():
        if field.name == "request_id":
            request_id = RequestId(value, who.tenant, "" if who is ANYBODY else who.name)
            setattr(request, field.name, request_id._replace(digest=_digest(request)).text)
        elif field.type == field.TYPE_MESSAGE and field.is_repeated and not is_map(field):
            for item in value:
                _own_request_ids(item, who)


def _digest(request: Message) -> str:
    """A digest of all that is asked, whether or not it is only to be checked."""
    copy = type(request)()
    copy.CopyFrom(request)
    for name in ("request_id", "validate_only", "estimate_start"):
        if name in copy.DESCRIPTOR.fields_by_name:
            copy.ClearField(name)
    body = copy.SerializeToString(deterministic=True)
    return blake2b(copy.DESCRIPTOR.name.encode() + body, digest_size=8).hexdigest()


def _log_refusal(method: str, who: Caller | None, context: Context, refused: ApiError) -> None:
    method, peer = method.rpartition("/")[2], peer_of(context)
    name = who.name if who else "somebody"
    fields = {"method": method, "caller": name, "peer": peer, "code": refused.code.name}
    log.warning(
        "refused %s of %s at %s: %s (%s)",
        method,
        name,
        peer,
        refused.message,
        refused.code.name,
        extra=fields,
    )
