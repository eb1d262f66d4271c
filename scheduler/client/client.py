"""The service from Python: one method per call, plain errors, retries that do no harm.

    with Client("127.0.0.1:7443") as client:
        job = client.create_job(spec)
        print(client.get_job(job.name).reason)

The address may be a comma-separated list of servers that share a store (see failover).
A call that finds no server is tried again for a second or two. Every change is safe
to repeat: it carries a request_id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from scheduler.client.connection import Connection
from scheduler.client.credentials import Credentials
from scheduler.v1 import (
    fabric_pb2,
    host_pb2,
    job_pb2,
    link_pb2,
    service_pb2,
    tenant_pb2,
    window_pb2,
)
from scheduler.wire.durations import duration

if TYPE_CHECKING:
    from scheduler.core import JobSpec

DEADLINE_S = 30.0
LONG_DEADLINE_S = 300.0  # a placement is computed, or a year of jobs read, while the caller waits
REPORTS = 500  # of one call of ReportHosts


Answer = TypeVar("Answer")


class UpdateOptions(TypedDict, total=False):
    """How a change is made. `dry_run`: only checked. `request_id`: the same one again changes
    nothing."""

    request_id: str
    dry_run: bool


class ChangeOptions(UpdateOptions, total=False):
    """Options of changes. `etag`: refuse unless the job or host is still as it names."""

    etag: str


def _request_id(given: str = "") -> str:
    """A new one unless one is given, so that a call that is tried again is done once."""
    return given or str(uuid.uuid4())


def _duration(seconds: int | None) -> Duration | None:
    return None if seconds is None else duration(seconds)


class Client:
    """A connection to one server, or to several that share a store. Use from any thread.

    `latest`: reads see everything that any caller has seen before, whichever server
    answers; without it, everything that this client has seen. Every method raises ServiceError.
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
        who = credentials or Credentials.from_environment()
        self._to = Connection(address, deadline_s, who, retries=retries, latest=latest)
        self._stub = self._to.stub

    @property
    def address(self) -> str:
        return self._to.address

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
        self._to.close()

    def _change(
        self,
        stub: Callable[..., Answer],
        request: Any,
        options: Mapping[str, Any],
        deadline_s: float | None = None,
    ) -> Answer:
        """Make a change by a request that names all but its options."""
        if etag := options.get("etag"):
            request.etag = etag
        request.request_id = _request_id(options.get("request_id", ""))
        request.validate_only = options.get("dry_run", False)
        return self._to.call(stub, request, deadline_s)

    # --- jobs ------------------------------------------------------------------

    def create_job(self, spec: JobSpec, request_id: str = "") -> job_pb2.Job:
        """Submit `spec`; again with the same `request_id` and it is the same job."""
        message, made_id = _spec_to_proto(spec), _request_id(request_id)
        request = service_pb2.CreateJobRequest(spec=message, request_id=made_id)
        return self._to.call(self._stub.CreateJob, request)

    def supposed_job(self, spec: JobSpec, *, with_decision: bool = False) -> job_pb2.Job:
        """Return the job that `spec` would become now, with an estimate of its start where it has
        to wait, and the inputs of the decision if asked for; change nothing."""
        request = service_pb2.CreateJobRequest(
            spec=_spec_to_proto(spec),
            validate_only=True,
            estimate_start=True,
            with_decision=with_decision,
        )
        return self._to.call(self._stub.CreateJob, request, LONG_DEADLINE_S)

    def offer(self, spec: JobSpec, request_id: str) -> job_pb2.Job:
        """Return what `spec` would get and when it would start; or the job that `request_id` has
        made, which has a uid. Raises: ServiceError."""
        request = service_pb2.CreateJobRequest(
            spec=_spec_to_proto(spec),
            request_id=request_id,
            validate_only=True,
            estimate_start=True,
        )
        return self._to.call(self._stub.CreateJob, request)

    def get_job(self, name: str, uid: str = "", *, with_decision: bool = False) -> job_pb2.Job:
        """Return a job; with a `uid` the job that has both this name and this uid, else NOT_FOUND.
        `with_decision`: also what its hosts were decided on; ServiceError where it has none."""
        request = service_pb2.GetJobRequest(name=name, uid=uid, with_decision=with_decision)
        deadline_s = LONG_DEADLINE_S if with_decision else None
        return self._to.call(self._stub.GetJob, request, deadline_s)

    def list_jobs(
        self,
        states: Collection[job_pb2.JobState.ValueType] = (),
        filter: str = "",
        order_by: str = "",
        *,
        recent_only: bool = False,
    ) -> list[job_pb2.Job]:
        """All jobs, page by page, by default in the order of their arrival. `recent_only`: without
        jobs that ended long ago, of which there may be very many."""
        return list(self.jobs_answer(states, filter, order_by, recent_only=recent_only).jobs)

    def jobs_answer(
        self,
        states: Collection[job_pb2.JobState.ValueType] = (),
        filter: str = "",
        order_by: str = "",
        *,
        recent_only: bool = False,
        estimate_starts: bool = False,
    ) -> service_pb2.ListJobsResponse:
        """List jobs with the version of the first page, from which a watch misses nothing.
        `estimate_starts`: with the starts of waiting jobs, which the server simulates."""
        request = service_pb2.ListJobsRequest(
            states=states,
            filter=filter,
            order_by=order_by,
            recent_only=recent_only,
            estimate_starts=estimate_starts,
        )
        return self._to.all_pages(self._stub.ListJobs, request, "jobs")

    def update_job(
        self, job: job_pb2.Job, fields: Sequence[str], **options: Unpack[UpdateOptions]
    ) -> job_pb2.Job:
        """Give a job the `fields` of `job.spec` ("labels", "priority", ...), the rest stays.

        With `job.etag` set, only if the job is as it was then.
        """
        mask = FieldMask(paths=[f"spec.{field}" for field in fields])
        request = service_pb2.UpdateJobRequest(job=job, update_mask=mask)
        return self._change(self._stub.UpdateJob, request, options)

    def cancel_job(
        self, name: str, reason: str = "", uid: str = "", **options: Unpack[ChangeOptions]
    ) -> job_pb2.Job:
        """Cancel a job; with a `uid`, only that job of this name."""
        request = service_pb2.CancelJobRequest(name=name, reason=reason, uid=uid)
        return self._change(self._stub.CancelJob, request, options)

    def hold_job(
        self, name: str, reason: str = "", uid: str = "", **options: Unpack[ChangeOptions]
    ) -> job_pb2.Job:
        """Keep a job from starting until it is released; a gang that runs goes on."""
        request = service_pb2.HoldJobRequest(name=name, reason=reason, uid=uid)
        return self._change(self._stub.HoldJob, request, options)

    def release_job(
        self, name: str, uid: str = "", **options: Unpack[ChangeOptions]
    ) -> job_pb2.Job:
        request = service_pb2.ReleaseJobRequest(name=name, uid=uid)
        return self._change(self._stub.ReleaseJob, request, options)

    def requeue_job(
        self,
        name: str,
        reason: str = "",
        uid: str = "",
        *,
        hold: bool = False,
        **options: Unpack[ChangeOptions],
    ) -> job_pb2.Job:
        """Stop the job's gang and let it wait again; hold it then with `hold`."""
        request = service_pb2.RequeueJobRequest(name=name, reason=reason, uid=uid, hold=hold)
        return self._change(self._stub.RequeueJob, request, options)

    def resize_job(
        self,
        name: str,
        dp: int,
        role: str = "",
        uid: str = "",
        **options: Unpack[ChangeOptions],
    ) -> job_pb2.Job:
        """Give the running gang `dp` replicas, or one of its roles."""
        request = service_pb2.ResizeJobRequest(name=name, role=role, dp=dp, uid=uid)
        return self._change(self._stub.ResizeJob, request, options)

    def end_job(
        self,
        name: str,
        outcome: job_pb2.JobState.ValueType,
        attempt: int = 0,
        reason: str = "",
        uid: str = "",
        **options: Unpack[ChangeOptions],
    ) -> job_pb2.Job:
        """Report that the gang has ended; `attempt` 0 = whichever runs. With a `uid`, a late report
        never ends the next job of this name."""
        request = service_pb2.EndJobRequest(
            name=name, outcome=outcome, attempt=attempt, reason=reason, uid=uid
        )
        return self._change(self._stub.EndJob, request, options)

    def explain_job(self, name: str, suppose: Sequence[str] = ()) -> service_pb2.ExplainJobResponse:
        """Return why a job waits; with `suppose`, also what would become of it: `["cordon z3"]`."""
        request = service_pb2.ExplainJobRequest(name=name, suppose=suppose)
        deadline_s = LONG_DEADLINE_S if suppose else None
        return self._to.call(self._stub.ExplainJob, request, deadline_s)

    def list_slots(
        self,
        sizes: Sequence[int] = (),
        tenant: str = "",
        priority_class: str = "",
        time_limit_s: int | None = None,
    ) -> service_pb2.ListSlotsResponse:
        """Return how many jobs of each size in GPUs would start now."""
        request = service_pb2.ListSlotsRequest(
            sizes=sizes,
            tenant=tenant,
            priority_class=priority_class,
            time_limit=_duration(time_limit_s),
        )
        return self._to.call(self._stub.ListSlots, request)

    def watch_jobs(
        self,
        after_version: int | None = None,
        name: str = "",
        filter: str = "",
        *,
        initial_list: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[service_pb2.WatchJobsResponse]:
        """Yield every change of jobs after `after_version` (None: from now on), across restarts of
        the server. With `filter` only of jobs that match before or after it. With `initial_list`
        first the jobs at hand, and a bookmark. Ends after `timeout_s`, by ServiceError, or when the
        caller stops reading."""
        request = service_pb2.WatchJobsRequest(
            after_version=after_version, name=name, filter=filter, in_batches=True
        )
        return self._to.watch(
            self._stub.WatchJobs, request, initial_list=initial_list, timeout_s=timeout_s
        )

    def tail_logs(
        self,
        name: str,
        rank: int = 0,
        lines: int = 0,
        *,
        follow: bool = False,
        attempt: int = 0,
        stacks: bool = False,
    ) -> Iterator[bytes]:
        """Stream the output of a rank: its last `lines`, 0 for all; with `follow` until the job
        ends. `attempt`: in which run of the gang, 0 for the last. `stacks`: where it was when its
        gang hung, instead. Raises: ServiceError."""
        request = service_pb2.TailLogsRequest(
            name=name, rank=rank, lines=lines, follow=follow, attempt=attempt, stacks=stacks
        )
        for piece in self._to.stream(self._stub.TailLogs, request):
            yield piece.data

    def open_channel(
        self, name: str, requests: Iterator[service_pb2.OpenChannelRequest]
    ) -> Iterator[service_pb2.OpenChannelResponse]:
        """Run a command beside a rank and stream its output. The first request names it, others are
        its input; it ends where the answers are not read to their end. Raises: ServiceError."""
        self.step_times(name)  # of several servers the leader answers it, and has the stream then
        yield from self._to.stream(self._stub.OpenChannel, requests)

    def step_times(self, name: str) -> service_pb2.ListStepTimesResponse:
        """Return how long the ranks of a gang computed in its last steps, as they report it.
        Raises: ServiceError."""
        return self._to.call(self._stub.ListStepTimes, service_pb2.ListStepTimesRequest(name=name))

    def audit_records(self, since_ns: int = 0, filter: str = "") -> list[service_pb2.AuditRecord]:
        """Return who asked for which change, page by page, oldest first."""
        request = service_pb2.ListAuditRecordsRequest(filter=filter)
        if since_ns:
            request.start_time.FromNanoseconds(since_ns)
        stub = self._stub.ListAuditRecords
        return list(self._to.all_pages(stub, request, "audit_records").audit_records)

    def export_state(self) -> Iterator[service_pb2.ExportStateResponse]:
        """The newest state and the ended jobs, part by part. Raises: ServiceError."""
        return self._to.stream(self._stub.ExportState, service_pb2.ExportStateRequest())

    def sum_usage(
        self,
        group_by: Sequence[str] = (),
        start_ns: int | None = None,
        end_ns: int | None = None,
        filter: str = "",
    ) -> service_pb2.SumUsageResponse:
        """Sum the usage of jobs: a row for each combination of `group_by` (tenant, user, day).

        Of jobs that ended from `start_ns` on (None: in the last 30 days) and before `end_ns`
        (None: until now, with live jobs).
        """
        keys = [service_pb2.UsageKey.Value(f"USAGE_KEY_{key.upper()}") for key in group_by]
        request = service_pb2.SumUsageRequest(group_by=keys, filter=filter)
        if start_ns is not None:
            request.start_time.FromNanoseconds(start_ns)
        if end_ns is not None:
            request.end_time.FromNanoseconds(end_ns)
        return self._to.call(self._stub.SumUsage, request, LONG_DEADLINE_S)

    # --- the fabric and its hosts ----------------------------------------------

    def get_fabric(self, *, with_file: bool = False) -> fabric_pb2.Fabric:
        """Return the tiers, domains and number of hosts of the fabric; with the content of its file
        on request."""
        request = service_pb2.GetFabricRequest(with_file=with_file)
        return self._to.call(self._stub.GetFabric, request)

    def apply_fabric(
        self,
        file: bytes,
        renames: Sequence[tuple[str, str]] = (),
        **options: Unpack[ChangeOptions],
    ) -> service_pb2.ApplyFabricResponse:
        """Replace the fabric by that of this file. `renames`: old and new names or ranges of hosts
        and domains. With `dry_run` what it would do, and what is in the way."""
        request = service_pb2.ApplyFabricRequest(
            file=file,
            renames=[service_pb2.FabricRename(old_name=a, new_name=b) for a, b in renames],
        )
        return self._change(self._stub.ApplyFabric, request, options, LONG_DEADLINE_S)

    def get_host(self, name: str) -> host_pb2.Host:
        return self._to.call(self._stub.GetHost, service_pb2.GetHostRequest(name=name))

    def list_hosts(
        self, states: Collection[host_pb2.HostState.ValueType] = (), job: str = "", filter: str = ""
    ) -> list[host_pb2.Host]:
        """All hosts, page by page, in the order of the fabric."""
        return list(self.hosts_answer(states, job, filter).hosts)

    def hosts_answer(
        self, states: Collection[host_pb2.HostState.ValueType] = (), job: str = "", filter: str = ""
    ) -> service_pb2.ListHostsResponse:
        """List hosts with the version of the first page, from which a watch misses nothing."""
        request = service_pb2.ListHostsRequest(states=states, job=job, filter=filter)
        return self._to.all_pages(self._stub.ListHosts, request, "hosts")

    def watch_hosts(
        self,
        after_version: int | None = None,
        name: str = "",
        *,
        initial_list: bool = False,
    ) -> Iterator[service_pb2.WatchHostsResponse]:
        """Yield every change of hosts, of one host, or of those of a domain; as `watch_jobs`."""
        request = service_pb2.WatchHostsRequest(after_version=after_version, name=name)
        return self._to.watch(self._stub.WatchHosts, request, initial_list=initial_list)

    def cordon_host(
        self, name: str, reason: str = "", **options: Unpack[ChangeOptions]
    ) -> host_pb2.Host:
        request = service_pb2.CordonHostRequest(name=name, reason=reason)
        return self._change(self._stub.CordonHost, request, options)

    def uncordon_host(
        self, name: str, reason: str = "", **options: Unpack[ChangeOptions]
    ) -> host_pb2.Host:
        request = service_pb2.UncordonHostRequest(name=name, reason=reason)
        return self._change(self._stub.UncordonHost, request, options)

    def drain_host(
        self, name: str, reason: str = "", **options: Unpack[ChangeOptions]
    ) -> host_pb2.Host:
        request = service_pb2.DrainHostRequest(name=name, reason=reason)
        return self._change(self._stub.DrainHost, request, options)

    def report_host(
        self,
        name: str,
        signal: str,
        detail: str = "",
        *,
        value: int = 0,
        gpu: int | None = None,
        xid: int = 0,
        dry_run: bool = False,
    ) -> host_pb2.Host | None:
        """Report a signal about a host, or a domain; return the host, None for a domain."""
        request = service_pb2.ReportHostRequest(
            name=name, signal=signal, detail=detail, value=value, gpu=gpu, xid=xid
        )
        response = self._change(self._stub.ReportHost, request, {"dry_run": dry_run})
        return response.host if response.HasField("host") else None

    def report_hosts(
        self, reports: Sequence[service_pb2.ReportHostRequest], *, dry_run: bool = False
    ) -> list[service_pb2.ReportResult]:
        """Report many signals, in order; return for each what became of it."""
        results: list[service_pb2.ReportResult] = []
        for start in range(0, len(reports), REPORTS):
            request = service_pb2.ReportHostsRequest(
                reports=reports[start : start + REPORTS], validate_only=dry_run
            )
            for report in request.reports:
                report.request_id = _request_id(report.request_id)
            results += self._to.call(self._stub.ReportHosts, request).results
        return results

    def list_links(
        self, filter: str = "", *, show_all: bool = False
    ) -> service_pb2.ListLinksResponse:
        """List uplinks of domains that are not plainly up and open, or all of them."""
        request = service_pb2.ListLinksRequest(show_all=show_all, filter=filter)
        return self._to.all_pages(self._stub.ListLinks, request, "links")

    def report_link(
        self, name: str, share: float, detail: str = "", **options: Unpack[UpdateOptions]
    ) -> link_pb2.Link:
        """Report the share of its built bandwidth that the uplink of a domain carries."""
        request = service_pb2.ReportLinkRequest(name=name, share=share, detail=detail)
        return self._change(self._stub.ReportLink, request, options)

    def change_link(
        self,
        verb: Literal["cordon", "drain", "uncordon"],
        name: str,
        reason: str = "",
        **options: Unpack[ChangeOptions],
    ) -> link_pb2.Link:
        """Cordon, drain or uncordon the uplink of a domain."""
        method = f"{verb.capitalize()}Link"
        request = getattr(service_pb2, f"{method}Request")(name=name, reason=reason)
        link: link_pb2.Link = self._change(getattr(self._stub, method), request, options)
        return link

    def list_spares(self) -> service_pb2.ListSparesResponse:
        """The spares of each zone: who holds them, what they survive, what one more buys."""
        return self._to.all_pages(self._stub.ListSpares, service_pb2.ListSparesRequest(), "zones")

    def defragment(
        self,
        *,
        hosts: int = 0,
        job: str = "",
        slow_gangs: bool = False,
        apply: bool = False,
        **options: Unpack[ChangeOptions],
    ) -> service_pb2.DefragmentResponse:
        """Propose or make moves that free `hosts`, or as many as `job` needs, in one outermost
        domain; or, for `slow_gangs`, moves that pay for gangs which degraded links hold up.

        `etag`: of the proposal; other moves are not made.
        """
        request = service_pb2.DefragmentRequest(apply=apply)
        if job:
            request.job = job
        elif slow_gangs:
            request.slow_gangs = True
        else:
            request.hosts = hosts
        return self._change(self._stub.Defragment, request, options, LONG_DEADLINE_S)

    # --- windows, tenants, status ----------------------------------------------

    def create_window(
        self, window: window_pb2.Window, **options: Unpack[UpdateOptions]
    ) -> window_pb2.Window:
        """Keep hosts for maintenance, or hold them for somebody, between two moments."""
        request = service_pb2.CreateWindowRequest(window=window)
        return self._change(self._stub.CreateWindow, request, options)

    def get_window(self, name: str) -> window_pb2.Window:
        """A window that is not over."""
        return self._to.call(self._stub.GetWindow, service_pb2.GetWindowRequest(name=name))

    def windows_answer(
        self,
        states: Collection[window_pb2.WindowState.ValueType] = (),
        filter: str = "",
        order_by: str = "",
    ) -> service_pb2.ListWindowsResponse:
        """List the windows that are not over, page by page, with the version of the first page; by
        default in the order in which they were made."""
        request = service_pb2.ListWindowsRequest(states=states, filter=filter, order_by=order_by)
        return self._to.all_pages(self._stub.ListWindows, request, "windows")

    def update_window(
        self, window: window_pb2.Window, fields: Sequence[str], **options: Unpack[UpdateOptions]
    ) -> window_pb2.Window:
        """Give these fields of the window of that name the values in `window`.

        With `window.etag` set, only if the window is as it was then.
        """
        mask = FieldMask(paths=fields)
        request = service_pb2.UpdateWindowRequest(window=window, update_mask=mask)
        return self._change(self._stub.UpdateWindow, request, options)

    def delete_window(
        self, name: str, reason: str = "", **options: Unpack[ChangeOptions]
    ) -> window_pb2.Window:
        """Remove the window; the answer is what it was. With `etag`, only if it still is."""
        request = service_pb2.DeleteWindowRequest(name=name, reason=reason)
        return self._change(self._stub.DeleteWindow, request, options)

    def get_tenant(self, name: str) -> tenant_pb2.Tenant:
        return self._to.call(self._stub.GetTenant, service_pb2.GetTenantRequest(name=name))

    def list_tenants(self, filter: str = "") -> service_pb2.ListTenantsResponse:
        """Return quotas, and what each tenant holds and has used, parents before children."""
        request = service_pb2.ListTenantsRequest(filter=filter)
        return self._to.all_pages(self._stub.ListTenants, request, "tenants")

    def get_status(self, gangs: int = 0, incidents: int = 0) -> service_pb2.GetStatusResponse:
        """Return the state of the cluster for one screen. `gangs`, `incidents`: at most so many, 0
        for as many as the server thinks fit."""
        request = service_pb2.GetStatusRequest(gangs=gangs, incidents=incidents)
        return self._to.call(self._stub.GetStatus, request)

    def list_incidents(self, most: int = 0) -> service_pb2.ListIncidentsResponse:
        """List failures, newest first, and what came of each; 0: as many as the server thinks
        fit."""
        request = service_pb2.ListIncidentsRequest(page_size=most)
        return self._to.call(self._stub.ListIncidents, request)


def _spec_to_proto(spec: JobSpec) -> job_pb2.JobSpec:
    """Imported here: the schema of job files takes a third of the time of other calls."""
    from scheduler.wire.specs import spec_to_proto

    return spec_to_proto(spec)
