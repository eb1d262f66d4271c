"""Calls that mean something together: windows made, found, changed, watched and removed.

What one call answers the next one sends back: etags, page tokens, request ids, proposals.
Most are right, so that the code behind the checks runs; some are changed a little.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from google.protobuf.message import Message

from drills.fuzz.calls import NAMES, START_NS, FuzzedCall
from drills.fuzz.mutate import Messages
from scheduler.v1 import job_pb2, service_pb2, window_pb2
from scheduler.wire.jobs import timestamp
from scheduler.wire.specs import spec_to_proto
from tests.build import exactly, spec

WINDOWS: Final = tuple("uvwxyz")
JOBS: Final = (*"abcd", "eval-1", "eval-2")
HOSTS: Final = ("z0", "z1", "z0-r0", "z1-r1", "z0-r0-h0", "z1-r[0-1]-h0", "z0-r1-h1")
SECOND_NS: Final = 10**9


class Life:
    """A source of calls without end that learns from the answers."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._messages = Messages(random, NAMES)
        self._next: service_pb2.ListWindowsRequest | None = None
        self._listed: set[str] = set()
        self._etags: dict[str, str] = {}
        self._proposal = ""
        self._makers: tuple[Callable[[], FuzzedCall], ...] = (
            *(self._create, self._create, self._create, self._delete, self._update, self._get),
            *(self._list, self._list, self._list, self._job, self._end, self._host),
            *(self._defragment, self._watch, self._watch, self._hosts),
        )

    def __iter__(self) -> Life:
        return self

    def __next__(self) -> FuzzedCall:
        call = self._random.choice(self._makers)()
        if self._random.random() < 0.1 and (other := self._messages.changed(call.request)):
            return FuzzedCall(call.method, other)
        return call

    def on_answer(self, call: FuzzedCall, answer: Message | None) -> None:
        """Learn etags from an answer; None: the call was refused.

        Raises: AssertionError when a page repeats a window.
        """
        match answer:
            case service_pb2.ListWindowsResponse():
                self._paged(call, answer)
            case service_pb2.DefragmentResponse():
                self._proposal = answer.etag
            case window_pb2.Window() if call.method == "DeleteWindow":
                self._etags.pop(answer.name, None)
            case window_pb2.Window():
                assert answer.uid
                assert answer.etag
                assert answer.update_time.ToNanoseconds() >= answer.create_time.ToNanoseconds()
                assert answer.chosen_hosts
                self._etags[answer.name] = answer.etag

    def _paged(self, call: FuzzedCall, answer: service_pb2.ListWindowsResponse) -> None:
        asked = call.request
        if not getattr(asked, "page_token", ""):
            self._listed.clear()
        uids = [window.uid for window in answer.windows]
        assert len(set(uids)) == len(uids)
        if not getattr(asked, "order_by", ""):  # an update may move it in another order
            assert not self._listed & set(uids)
        self._listed |= set(uids)
        self._next = None
        if answer.next_page_token and isinstance(asked, service_pb2.ListWindowsRequest):
            self._next = service_pb2.ListWindowsRequest()
            self._next.CopyFrom(asked)
            self._next.page_token = answer.next_page_token

    def _create(self) -> FuzzedCall:
        fresh = f"w{self._random.randrange(10**6)}"
        name = fresh if self._random.random() < 0.7 else self._name()
        request = service_pb2.CreateWindowRequest(window=self._window(name))
        return FuzzedCall("CreateWindow", self._how(request))

    def _name(self) -> str:
        """Mostly of a window that there is."""
        return self._random.choice((*WINDOWS, *self._etags, *self._etags))

    def _window(self, name: str) -> window_pb2.Window:
        random = self._random
        start_ns = START_NS + random.choice((0, 1, 5, 60, 600, 3_600)) * SECOND_NS
        window = window_pb2.Window(
            name=name,
            kind=random.choice(window_pb2.WindowKind.values()[1:]),
            start_time=timestamp(start_ns),
            end_time=timestamp(start_ns + random.choice((1, 2, 20, 90)) * SECOND_NS),
            hosts=random.sample(HOSTS, 1),
            leave=random.choice(window_pb2.WindowLeave.values()),
            reason=random.choice(("", "BIOS 2.1", "é")),
        )
        if window.kind == window_pb2.WINDOW_KIND_RESERVATION:
            window.host_count = random.randint(0, 2)
            window.tenant = random.choice(("", "default"))
            if not window.tenant or random.random() < 0.3:
                window.jobs.append(random.choice((*JOBS, "eval-*")))
        return window

    def _update(self) -> FuzzedCall:
        window = self._window(self._name())
        paths = self._random.choice((["leave", "reason"], ["end_time", "reason"], ["hosts"]))
        request = service_pb2.UpdateWindowRequest(window=window)
        if self._random.random() < 0.8:
            request.update_mask.paths.extend(paths)
        request.window.etag = self._etag(window.name)
        return FuzzedCall("UpdateWindow", self._how(request))

    def _delete(self) -> FuzzedCall:
        name = self._name()
        request = service_pb2.DeleteWindowRequest(name=name, etag=self._etag(name))
        return FuzzedCall("DeleteWindow", self._how(request))

    def _get(self) -> FuzzedCall:
        name = self._name()
        return FuzzedCall("GetWindow", service_pb2.GetWindowRequest(name=name))

    def _list(self) -> FuzzedCall:
        random = self._random
        if self._next is not None and random.random() < 0.7:
            return FuzzedCall("ListWindows", self._next)
        request = service_pb2.ListWindowsRequest(page_size=2)
        if random.random() < 0.3:
            wanted = ("kind = MAINTENANCE", "hosts:z0-*", 'start_time > "2023-11-14T22:13Z"')
            request.filter = random.choice(wanted)
            request.order_by = random.choice(("", "name", "start_time desc"))
        return FuzzedCall("ListWindows", request)

    def _job(self) -> FuzzedCall:
        random = self._random
        made = spec(
            random.choice(JOBS),
            random.choice((1, 1, 2, 4)),
            limit_s=random.choice((None, 1, 60)),
            spares=random.choice((exactly(0), exactly(1))),
        )
        return FuzzedCall("CreateJob", service_pb2.CreateJobRequest(spec=spec_to_proto(made)))

    def _end(self) -> FuzzedCall:
        name, done = self._random.choice(JOBS), job_pb2.JOB_STATE_COMPLETED
        return FuzzedCall("EndJob", service_pb2.EndJobRequest(name=name, outcome=done))

    def _host(self) -> FuzzedCall:
        name, random = self._random.choice(("z0-r0-h0", "z1-r0-h1", "z1-r1-h1")), self._random
        method = random.choice(("CordonHost", "UncordonHost", "DrainHost", "ReportHost"))
        request = getattr(service_pb2, f"{method}Request")(name=name)
        if method == "ReportHost":
            request.signal = random.choice(("gpu-lost", "repaired", "repaired", "link-flap"))
        return FuzzedCall(method, request)

    def _defragment(self) -> FuzzedCall:
        request = service_pb2.DefragmentRequest(hosts=self._random.randint(1, 4))
        request.apply = self._random.random() < 0.5
        request.etag = self._random.choice(("", self._proposal))
        return FuzzedCall("Defragment", self._how(request))

    def _watch(self) -> FuzzedCall:
        name = self._random.choice(("", "", "z0", "z1-r0-h1"))
        if self._random.random() < 0.5:
            return FuzzedCall("WatchWindows", service_pb2.WatchWindowsRequest(after_version=0))
        return FuzzedCall("WatchHosts", service_pb2.WatchHostsRequest(after_version=0, name=name))

    def _hosts(self) -> FuzzedCall:
        return FuzzedCall("ListHosts", service_pb2.ListHostsRequest(filter="state != HEALTHY"))

    def _etag(self, name: str) -> str:
        known = self._etags.get(name, "")
        return self._random.choice(("", "", known, known, known, "0123456789abcdef"))

    def _how(self, request: Any) -> Any:
        ids = ("", "", f"r{self._random.randrange(10**6)}", "r1")
        request.request_id = self._random.choice(ids)
        request.validate_only = self._random.random() < 0.1
        return request
