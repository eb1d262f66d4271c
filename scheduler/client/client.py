"""The service from Python: one method per call, plain errors, retries that do no harm.

    with Client("127.0.0.1:7443") as client:
        job = client.create_job(spec)
        print(client.get_job(job.name).reason)

The address may be a comma-separated list of servers that share a store (see failover).
A call that finds no server is tried again for a second or two. Every change is safe
to repeat: it carries a request_id.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from grpc_status import rpc_status

from scheduler.client.credentials import Credentials
from scheduler.client.failover import PINGS, UNANSWERED, FailoverChannel, addresses
from scheduler.client.health import HealthMethods
from scheduler.client.hosts import HostMethods
from scheduler.client.windows import WindowMethods
from scheduler.core import JobSpec
from scheduler.files.errors import InputError, Problem
from scheduler.v1 import host_pb2, job_pb2, placement_pb2, service_pb2, service_pb2_grpc
from scheduler.wire.specs import spec_to_proto

DEADLINE_S = 30.0
DRY_RUN_DEADLINE_S = 300.0  # a placement is computed while the caller waits
_WATCH_TRIES = 8

_RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": "scheduler.v1.SchedulerService"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": [code.name for code in UNANSWERED],
            },
        }
    ]
}

_OPTIONS = (
    ("grpc.service_config", json.dumps(_RETRIES)),
    # A server that restarts is found again soon: the default waits up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

_LATEST = (("muster-read", "latest"),)

Message = TypeVar("Message")


class ServiceError(Exception):
    """What the server refused, or that there was none.

    `code`: name of the gRPC code. `reason`: the server's word to switch on, one of
    ErrorReason without its prefix, "" when it did not answer. `violations`: (field,
    message) of each field at fault. `retry_s`: the same call may succeed so much later.
    """

    def __init__(
        self,
        code: str,
        message: str,
        reason: str = "",
        violations: tuple[tuple[str, str], ...] = (),
        retry_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.violations = violations
        self.retry_s = retry_s


class How(TypedDict, total=False):
    """How a change is made. `etag`: only if the job or host is still what it names.
    `dry_run`: only checked. `request_id`: the same one again changes nothing."""

    etag: str
    request_id: str
    dry_run: bool


def _how(how: How) -> dict[str, Any]:
    """The fields of a request that say so."""
    return {
        "etag": how.get("etag", ""),
        "request_id": _request_id(how.get("request_id", "")),
        "validate_only": how.get("dry_run", False),
    }


def _request_id(given: str = "") -> str:
    """A new one unless one is given, so that a call that is tried again is done once."""
    return given or str(uuid.uuid4())


class Client(HostMethods, WindowMethods, HealthMethods):
    """A connection to one server, or to several that share a store. Use from any thread.

    `latest`: reads see everything that anybody was told before, whichever server answers;
    without it, everything that this client was told.
    """

    def __init__(
        self,
        address: str,
        deadline_s: float = DEADLINE_S,
        *,
        retries: bool = True,
        latest: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        """`credentials` None: those of the environment. Raises: InputError, also for them."""
        self.address = address
        self._deadline_s = deadline_s
        self._metadata = _LATEST if latest else ()
        who = credentials or Credentials.from_environment()
        self._channel = _channel(address, who, retries=retries)
        self._stub = service_pb2_grpc.SchedulerServiceStub(self._channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def create_job(self, spec: JobSpec, request_id: str = "") -> job_pb2.Job:
        """Submit `spec`; again with the same `request_id` and it is the same job."""
        request = service_pb2.CreateJobRequest(
            spec=spec_to_proto(spec), request_id=_request_id(request_id)
        )
        return self._call(self._stub.CreateJob, request).job

    def dry_run(self, spec: JobSpec) -> placement_pb2.Answer:
        """What `spec` would get now; nothing is changed."""
        request = service_pb2.CreateJobRequest(spec=spec_to_proto(spec), validate_only=True)
        return self._call(self._stub.CreateJob, request, DRY_RUN_DEADLINE_S).answer

    def get_job(self, name: str) -> job_pb2.Job:
        return self.show_job(name).job

    def show_job(self, name: str) -> service_pb2.GetJobResponse:
        """The job and what its time went to."""
        return self._call(self._stub.GetJob, service_pb2.GetJobRequest(name=name))

    def list_jobs(
        self,
        states: Collection[job_pb2.JobState.ValueType] = (),
        filter: str = "",
        order_by: str = "",
    ) -> list[job_pb2.Job]:
        """All jobs at hand, page by page, by default in the order of their arrival."""
        return list(self.jobs_answer(states, filter, order_by).jobs)

    def jobs_answer(
        self,
        states: Collection[job_pb2.JobState.ValueType] = (),
        filter: str = "",
        order_by: str = "",
    ) -> service_pb2.ListJobsResponse:
        """The same with the version of the first page: a watch from there misses nothing."""
        request = service_pb2.ListJobsRequest(states=states, filter=filter, order_by=order_by)
        return self._whole(self._stub.ListJobs, request, "jobs")

    def update_job(
        self,
        job: job_pb2.Job,
        fields: Sequence[str],
        *,
        request_id: str = "",
        dry_run: bool = False,
    ) -> job_pb2.Job:
        """Give a job the `fields` of `job.spec` ("labels", "priority", ...), the rest stays.

        With `job.etag` set, only if the job is as it was then.
        """
        request = service_pb2.UpdateJobRequest(
            job=job,
            update_mask=FieldMask(paths=[f"spec.{field}" for field in fields]),
            request_id=_request_id(request_id),
            validate_only=dry_run,
        )
        return self._call(self._stub.UpdateJob, request).job

    def cancel_job(self, name: str, reason: str = "", **how: Unpack[How]) -> job_pb2.Job:
        request = service_pb2.CancelJobRequest(name=name, reason=reason, **_how(how))
        return self._call(self._stub.CancelJob, request).job

    def end_job(
        self,
        name: str,
        outcome: job_pb2.JobState.ValueType,
        attempt: int = 0,
        reason: str = "",
        **how: Unpack[How],
    ) -> job_pb2.Job:
        """Report that the gang has ended; `attempt` 0 = whichever runs."""
        request = service_pb2.EndJobRequest(
            name=name,
            outcome=outcome,
            attempt=attempt,
            reason=reason,
            **_how(how),
        )
        return self._call(self._stub.EndJob, request).job

    def explain_job(self, name: str, suppose: Sequence[str] = ()) -> service_pb2.ExplainJobResponse:
        """Why it waits; with `suppose`, also what would become of it: `["cordon z3"]`."""
        request = service_pb2.ExplainJobRequest(name=name, suppose=suppose)
        deadline_s = DRY_RUN_DEADLINE_S if suppose else None
        return self._call(self._stub.ExplainJob, request, deadline_s)

    def defragment(
        self,
        *,
        hosts: int = 0,
        job: str = "",
        apply: bool = False,
        checkpoint_s: int | None = None,
        restart_s: int | None = None,
        **how: Unpack[How],
    ) -> service_pb2.DefragmentResponse:
        """Moves that free `hosts`, or as many as `job` needs, in one outermost domain.

        `etag`: of the proposal; other moves are not made.
        """
        request = service_pb2.DefragmentRequest(
            apply=apply, checkpoint_s=checkpoint_s, restart_s=restart_s, **_how(how)
        )
        if job:
            request.job = job
        else:
            request.hosts = hosts
        return self._call(self._stub.Defragment, request, DRY_RUN_DEADLINE_S)

    def watch_jobs(
        self, after_version: int | None = None, name: str = ""
    ) -> Iterator[service_pb2.WatchJobsResponse]:
        """Every change after `after_version` (None: from now on), across restarts of the
        server. Ends only by ServiceError, or when the caller stops reading."""

        def stream(after: int | None) -> Any:
            request = service_pb2.WatchJobsRequest(after_version=after, name=name)
            return self._stub.WatchJobs(request)

        return self._watch(stream, after_version)

    def watch_hosts(
        self, after_version: int | None = None, name: str = ""
    ) -> Iterator[service_pb2.WatchHostsResponse]:
        """Every change of hosts, or of one, or of those of a domain; as `watch_jobs`."""

        def stream(after: int | None) -> Any:
            request = service_pb2.WatchHostsRequest(after_version=after, name=name)
            return self._stub.WatchHosts(request)

        return self._watch(stream, after_version)

    def _watch(self, open_stream: Callable[[int | None], Any], after: int | None) -> Iterator[Any]:
        """What a stream says, opened again after the last whole change where it breaks."""
        failed = 0
        while True:
            stream = open_stream(after)
            try:
                # Where a watch "from now on" began, so that it resumes there.
                for key, value in stream.initial_metadata():
                    if key == "muster-version":
                        after, failed = int(value), 0
                for change in stream:
                    if not getattr(change, "more", False):
                        after = change.version
                    failed = 0
                    yield change
            except grpc.RpcError as error:
                failed += 1
                if not _may_resume(error) or failed == _WATCH_TRIES:
                    raise _service_error(error, self.address) from None
                time.sleep(min(2.0, 0.05 * 2**failed))
            finally:
                stream.cancel()

    def get_status(self, gangs: int = 0, incidents: int = 0) -> service_pb2.GetStatusResponse:
        """The cluster on one screen. 0: as many as the server thinks fit."""
        request = service_pb2.GetStatusRequest(gangs=gangs, incidents=incidents)
        return self._call(self._stub.GetStatus, request)

    def cordon_host(self, name: str, reason: str = "", **how: Unpack[How]) -> host_pb2.Host:
        request = service_pb2.CordonHostRequest(name=name, reason=reason, **_how(how))
        return self._call(self._stub.CordonHost, request).host

    def uncordon_host(self, name: str, reason: str = "", **how: Unpack[How]) -> host_pb2.Host:
        request = service_pb2.UncordonHostRequest(name=name, reason=reason, **_how(how))
        return self._call(self._stub.UncordonHost, request).host

    def drain_host(self, name: str, reason: str = "", **how: Unpack[How]) -> host_pb2.Host:
        request = service_pb2.DrainHostRequest(name=name, reason=reason, **_how(how))
        return self._call(self._stub.DrainHost, request).host

    def _whole(self, method: Callable[..., Message], request: Any, items: str) -> Message:
        """The first page, with the `items` of all others behind its own."""
        whole: Any = self._call(method, request)
        while whole.next_page_token:
            request.page_token = whole.next_page_token
            page: Any = self._call(method, request)
            getattr(whole, items).extend(getattr(page, items))
            whole.next_page_token = page.next_page_token
        return whole  # type: ignore[no-any-return]

    def _call(
        self, method: Callable[..., Message], request: Any, deadline_s: float | None = None
    ) -> Message:
        """Raises: ServiceError."""
        try:
            timeout = deadline_s or self._deadline_s
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise _service_error(error, self.address) from None


def _channel(address: str, who: Credentials, *, retries: bool) -> grpc.Channel:
    """A channel to one address, or to whoever of a list can answer."""
    listed = addresses(address)
    if not listed:
        raise InputError(Problem("address", "must name a server, HOST:PORT"))
    if len(listed) > 1 and retries:
        each = (*_OPTIONS, *PINGS, ("grpc.enable_retries", 0))
        return FailoverChannel(listed, lambda one: who.channel(one, each))
    options = (*_OPTIONS, ("grpc.enable_retries", int(retries)))
    return who.channel(address, options)


def _may_resume(error: grpc.RpcError) -> bool:
    return error.code() in (*UNANSWERED, grpc.StatusCode.ABORTED)


def _service_error(error: grpc.RpcError, address: str) -> ServiceError:
    code = error.code()
    message, reason = error.details() or code.name, ""
    violations: list[tuple[str, str]] = []
    retry_s: float | None = None
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, bad, retry = ErrorInfo(), BadRequest(), RetryInfo()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(bad):
            violations += [(v.field, v.description) for v in bad.field_violations]
        elif detail.Unpack(retry):
            retry_s = retry.retry_delay.ToMilliseconds() / 1_000
    if not reason and code is grpc.StatusCode.CANCELLED:
        message = f"the server at {address} stopped before it answered"
    elif not reason and code is grpc.StatusCode.UNAVAILABLE:
        message = unreachable(address, message)
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"the server at {address} did not answer in time"
    return ServiceError(code.name, message, reason, tuple(violations), retry_s)


def unreachable(address: str, details: str) -> str:
    """gRPC says the same of a server that is not there and of one that it does not trust."""
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return (
            f"the certificate of {address} is not from a CA that you trust, or is for another name"
        )
    if "handshake" in details.lower():
        return f"no TLS with {address}: it may have no TLS, or need a client certificate"
    if "Socket closed" in details or "recvmsg" in details:
        return (
            f"{address} closed the connection: it may need TLS (MUSTER_CA) or a client certificate"
        )
    return f"no server answers at {address}"
