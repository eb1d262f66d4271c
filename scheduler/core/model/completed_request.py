"""Which requests have been carried out; admission/idempotency.py is where this is asked.

What a request did is kept under its request_id, in words: the same id with other words
is a mistake of the caller. The newest are kept; a client retries within seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from msgspec import Struct

from scheduler.core.collections.persistent_map import PersistentMap, newest
from scheduler.core.model.events import (
    Defragmented,
    Event,
    HostMoved,
    HostSignalled,
    JobEnded,
    JobSubmitted,
    JobUpdated,
    LinkMoved,
    LinkReported,
    RequestEvent,
    WindowRemoved,
    WindowSet,
)

REMEMBERED: Final = 50_000


class CompletedRequest(Struct, frozen=True):
    """What a request did: a verb and what it was done to. `uid`: of a submitted job."""

    what: str
    uid: str = ""


def remembered(
    requests: Mapping[str, CompletedRequest], event: Event
) -> Mapping[str, CompletedRequest]:
    """The requests with the one that caused `event`, if it had an id."""
    if not isinstance(event, RequestEvent) or not event.request_id:
        return requests
    match event:
        case JobSubmitted():
            done = CompletedRequest(f"submit {event.spec.name}", event.uid)
        case JobUpdated():
            done = CompletedRequest(f"update {event.name}")
        case JobEnded():
            done = CompletedRequest(f"{event.outcome} {event.name}")
        case HostMoved():
            done = CompletedRequest(f"{event.move} {event.host}")
        case HostSignalled():
            done = CompletedRequest(f"{event.signal} {event.host}")
        case LinkReported():
            done = CompletedRequest(f"report link {event.link}")
        case LinkMoved():
            done = CompletedRequest(f"{event.move} link {event.link}")
        case Defragmented():
            done = CompletedRequest(f"defragment for {event.asked}")
        case WindowSet():
            done = CompletedRequest(f"set window {event.window.name}")
        case WindowRemoved():
            done = CompletedRequest(f"remove window {event.name}")
        case _:
            assert_never(event)
    known = requests if isinstance(requests, PersistentMap) else PersistentMap(requests)
    return newest(known.having(event.request_id, done), REMEMBERED)
