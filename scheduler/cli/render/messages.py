"""What the server answers, for people: jobs, hosts, changes and reasons as text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from placement.fabric import hostlist
from scheduler.cli.render.restart import options_text, shortages_text
from scheduler.cli.render.tables import Column, ListTable
from scheduler.cli.render.text import (
    bytes_text,
    columns,
    counted,
    enum_word,
    gap_text,
    gpus_text,
    seconds_text,
    step_text,
)
from scheduler.core.names import HIDDEN
from scheduler.files.errors import one_line
from scheduler.v1 import advice_pb2, host_pb2, job_pb2, placement_pb2, service_pb2, tenant_pb2

_SHOWN_RANGES = 8


def to_mapping(message: Message) -> dict[str, Any]:
    """Return the message as JSON values, under the names of the .proto file; durations are numbers,
    with the unit in the key, as in the files that people write."""
    values = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _with_units(message.DESCRIPTOR, values)


def _with_units(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in values.items():
        inner = kind.fields_by_name[name].message_type
        if inner is None or inner.GetOptions().map_entry:
            shown[name] = value
        elif inner is Duration.DESCRIPTOR:
            key, convert = _UNITS.get(f"{kind.name}.{name}", (f"{name}_s", str))
            shown[key] = convert(Decimal(value.removesuffix("s")))
        elif isinstance(value, list):
            shown[name] = [_with_units(inner, v) if isinstance(v, dict) else v for v in value]
        else:
            shown[name] = _with_units(inner, value) if isinstance(value, dict) else value
    if kind is advice_pb2.Reason.DESCRIPTOR:
        shown.setdefault("passing_time_limit_s", "0")
    return shown


# Key and value of durations that are not in seconds; int64 is a text in JSON, as protobuf has it.
_UNITS: Final[dict[str, tuple[str, Callable[[Decimal], object]]]] = {
    "GoodputShare.duration": ("time_ns", lambda seconds: str(int(seconds * 10**9))),
    "ListSparesResponse.mean_repair_duration": ("repair_hours", lambda s: float(s / 3600)),
}


def job_state(job: job_pb2.Job | service_pb2.ExplainJobResponse) -> str:
    return enum_word(job, "state")


def outcome(answer: placement_pb2.Answer) -> str:
    return enum_word(answer, "outcome")


def jobs_table(jobs: Sequence[job_pb2.Job]) -> ListTable:
    """Write a table of jobs, with columns for users and starts where one of the jobs has one."""
    return ListTable(
        (
            Column("NAME", lambda job: job.name),
            Column("TENANT", lambda job: job.tenant),
            Column("USER", lambda job: job.user or "-", is_wide=not any(job.user for job in jobs)),
            Column("STATE", job_state),
            Column("PRIORITY", lambda job: str(job.priority), is_right=True),
            Column("CLASS", lambda job: job.spec.priority_class or "-", is_wide=True),
            Column("HOSTS", lambda job: _number(job.placement.host_count), is_right=True),
            Column(
                "SPARES",
                lambda job: _number(job.placement.spare_count),
                is_right=True,
                is_minor=True,
            ),
            Column("ATTEMPT", lambda job: f"{job.attempt:,}", is_right=True, is_minor=True),
            Column("SUBMITTED", lambda job: time_text(job.create_time), is_minor=True),
            Column("STARTS", _starts, is_wide=not any(map(_is_estimated, jobs))),
            Column("CHANGED", lambda job: time_text(job.update_time), is_wide=True),
            Column("UID", lambda job: job.uid, is_wide=True),
            Column("LABELS", _labels, is_wide=True, is_text=True),
            Column(
                "HOST LIST", lambda job: hostlist.fold(job.placement.hosts) or "-", is_wide=True
            ),
            Column("REASON", lambda job: job.reason, is_text=True),
        ),
        "no jobs",
    )


def _is_estimated(job: job_pb2.Job) -> bool:
    return job.HasField("start_estimate")


def _starts(job: job_pb2.Job) -> str:
    """`2026-11-21T06:00:00Z`, or `>` and the time before which it does not start."""
    if job.start_estimate.HasField("start_time"):
        return time_text(job.start_estimate.start_time)
    if job.start_estimate.HasField("not_before_time"):
        return f">{time_text(job.start_estimate.not_before_time)}"
    return "unknown" if _is_estimated(job) else "-"


def jobs_text(jobs: Sequence[job_pb2.Job]) -> str:
    return jobs_table(jobs).text(jobs)


def listed_jobs_text(answer: service_pb2.ListJobsResponse) -> str:
    return jobs_text(answer.jobs)


def _labels(job: job_pb2.Job) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(job.spec.labels.items())) or "-"


def _number(count: int) -> str:
    return f"{count:,}" if count else "-"


def job_text(job: job_pb2.Job) -> str:
    rows = [
        ("name", job.name),
        ("uid", job.uid),
        ("state", job_state(job)),
        ("reason", job.reason or "-"),
        ("attempt", str(job.attempt)),
        ("tenant", job.tenant),
        *([("user", job.user)] if job.user else []),
        ("priority", _priority(job)),
        ("submitted", time_text(job.create_time)),
        ("changed", time_text(job.update_time)),
    ]
    if job.spec.HasField("time_limit"):
        rows.append(("time limit", seconds_text(job.spec.time_limit.ToNanoseconds() / 1e9)))
    rows += _waits(job)
    if job.HasField("launch_time"):
        rows.append(("launched", time_text(job.launch_time)))
    if job.HasField("saved_checkpoint"):
        saved = job.saved_checkpoint
        rows.append(("checkpoint", f"step {saved.step:,}, attempt {saved.attempt}: {saved.where}"))
    if job.HasField("progress"):
        rows.append(("progress", _progress(job.progress)))
    if job.HasField("lineage"):
        rows += _lineage(job.lineage)
    if job.spec.labels:
        labels = sorted(job.spec.labels.items())
        rows.append(("labels", ", ".join(f"{key}={value}" for key, value in labels)))
    if job.legal_dp:
        from scheduler.core.wording import sizes_text

        role = job.spec.roles[-1] if job.spec.roles else None
        most = (job.spec if role is None else role).parallelism.dp
        text = f"{job.dp:,} of {most:,}; legal: {sizes_text(job.legal_dp)}"
        rows.append(("dp", f"{role.name}: {text}" if role else text))
    if job.spec.roles:
        rows += _roles(job)
    if job.HasField("placement"):
        rows += placement_rows(job.placement)
    if not job.restart_options:
        return columns(rows)
    return f"{columns(rows)}\n\nafter the last failure\n{options_text(job.restart_options)}"


def _progress(now: job_pb2.TrainingProgress) -> str:
    """`step 1,200 of 5,000, 2.1 s a step, 2.2 h to go, loss 2.31, copies of step 1,180 in memory;
    saving`."""
    text = f"step {now.step:,}"
    if now.total_steps:
        text += f" of {now.total_steps:,}"
    if now.HasField("step_time"):
        step_s = now.step_time.ToNanoseconds() / 1e9
        text += f", {seconds_text(step_s)} a step{_compare_with_model(now)}"
        if now.total_steps > now.step:
            text += f", {seconds_text(step_s * (now.total_steps - now.step))} to go"
    if now.HasField("loss"):
        text += f", loss {now.loss:.4g}"
    if now.copied_step:
        text += f", copies of step {now.copied_step:,} in memory"
    age_s = now.age.ToNanoseconds() / 1e9
    text += f"; {seconds_text(age_s)} ago" if age_s >= 1 else ""
    return text + (f"; {now.busy}" if now.busy else "")


def _compare_with_model(now: job_pb2.TrainingProgress) -> str:
    """Compare the step with the model's interval, and say whether the gang is slower than that."""
    if not now.HasField("model_step_time"):
        return ""
    low, likely, high = (
        seconds_text(each.ToNanoseconds() / 1e9)
        for each in (now.model_step_time_low, now.model_step_time, now.model_step_time_high)
    )
    slower = ": SLOWER THAN ITS MODEL" if now.slower_than_model else ""
    return f" (modelled {likely}, {low} to {high} in 8 of 10 such runs{slower})"


def _roles(job: job_pb2.Job) -> list[tuple[str, str]]:
    """The ranks of each role, and its hosts where it holds some."""
    from placement.fabric.hostlist import fold
    from scheduler.cli.jobs.ranks import ranks_by_role

    rows, hosts = list[tuple[str, str]](), list(job.placement.hosts)
    on_host = ranks_by_role(job)[-1][1].stop // len(hosts) if hosts else 0
    for role, ranks in zip(job.spec.roles, (each for _, each in ranks_by_role(job)), strict=True):
        text = f"{role.name}: ranks {ranks.start:,} to {ranks.stop - 1:,}"
        if on_host:
            own = hosts[ranks.start // on_host : ranks.stop // on_host]
            text += f" on {fold(own)}"
        if role.restart == job_pb2.ROLE_RESTART_ROLE:
            text += ", begins again alone"
        if count := job.role_restarts.get(role.name, 0):
            text += f": {count:,} time{'' if count == 1 else 's'} in this attempt"
        rows.append(("" if rows else "roles", text))
    return rows


def _lineage(run: job_pb2.RunLineage) -> list[tuple[str, str]]:
    """The run of a job, where it goes on, and what its jobs have saved."""
    resume = run.resume
    text = f"{run.name}: begins at step 0"
    if run.HasField("resume"):
        who = f", which job {resume.job} saved" if resume.job else ""
        text = f"{run.name}: goes on from step {resume.step:,}{who}: {resume.where}"
    rows = [("run", text)]
    for place, saved in enumerate(run.checkpoints):
        title = "run's checkpoints" if place == 0 else ""
        when = time_text(saved.create_time)
        rows.append((title, f"step {saved.step:,}, {when}, {saved.job} attempt {saved.attempt}"))
    return rows


def _waits(job: job_pb2.Job) -> list[tuple[str, str]]:
    """Who holds it, when it begins at the earliest, and what it depends on."""
    rows = []
    if job.hold:
        rows.append(
            ("held", "by its owner" if job.hold == job_pb2.HOLD_OWNER else "by an operator")
        )
    if job.spec.HasField("begin_time"):
        rows.append(("begins", time_text(job.spec.begin_time)))
    if job.spec.dependencies:
        rows.append(("depends on", ",".join(map(_dependency, job.spec.dependencies))))
    return rows


def _dependency(term: job_pb2.Dependency) -> str:
    kind = enum_word(term, "kind")
    return f"{kind}:{term.job}" if term.job else kind


def _priority(job: job_pb2.Job) -> str:
    level = f" ({job.spec.priority_class})" if job.spec.priority_class else ""
    return f"{job.priority}{level}{', preemptible' if job.preemptible else ''}"


def tenants_table(tenants: Sequence[tenant_pb2.Tenant], default: str = "") -> ListTable:
    """Write a table of tenants; sub-tenants are indented below their parent, where that is
    listed."""
    depth: dict[str, int] = {}
    for tenant in tenants:
        depth[tenant.name] = depth.get(tenant.parent, -1) + 1

    def name(tenant: tenant_pb2.Tenant) -> str:
        mark = " (default)" if tenant.name == default else ""
        return f"{'  ' * depth[tenant.name]}{tenant.name}{mark}"

    def limit(tenant: tenant_pb2.Tenant) -> str:
        return f"{tenant.limit_gpus:,}" if tenant.HasField("limit_gpus") else "-"

    return ListTable(
        (
            Column("TENANT", name),
            Column("GUARANTEED", lambda tenant: f"{tenant.guaranteed_gpus:,}", is_right=True),
            Column("LIMIT", limit, is_right=True),
            Column("HELD", lambda tenant: f"{tenant.held_gpus:,}", is_right=True),
            Column("QUEUED", lambda tenant: f"{tenant.queued_gpus:,}", is_right=True),
            Column("USED GPU-H", lambda tenant: f"{tenant.used_gpu_hours:,.1f}", is_right=True),
            Column("SHARE", lambda tenant: f"{100 * tenant.share:.0f} %", is_right=True),
            Column("WEIGHT", lambda tenant: str(tenant.weight), is_right=True),
            Column("PARENT", lambda tenant: tenant.parent or "-", is_wide=True),
            Column("CREATED", lambda tenant: time_text(tenant.create_time), is_wide=True),
            Column("CHANGED", lambda tenant: time_text(tenant.update_time), is_wide=True),
            Column("CELLS", _cells, is_text=True),
            Column("KINDS", _kinds, is_text=True, is_wide=True),
            Column("ETAG", lambda tenant: tenant.etag, is_wide=True),
        ),
        "no tenants",
    )


def tenant_text(tenant: tenant_pb2.Tenant) -> str:
    return tenants_table([tenant]).describe(tenant)


def _hosts_text(kind: tenant_pb2.KindQuota) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(kind.hosts.items()))


def _kind(kind: tenant_pb2.KindQuota) -> str:
    """`holds 64 GPUs, guaranteed 128, limit 256`."""
    limit = f", limit {kind.limit_gpus:,}" if kind.HasField("limit_gpus") else ""
    return f"holds {kind.held_gpus:,} GPUs, guaranteed {kind.guaranteed_gpus:,}{limit}"


def _kinds(tenant: tenant_pb2.Tenant) -> str:
    return "; ".join(f"{_hosts_text(kind)} {_kind(kind)}" for kind in tenant.kinds)


def _cells(tenant: tenant_pb2.Tenant) -> str:
    """`32 x rack, 1 x zone of 64 hosts; 12 hosts kept`."""
    cells = [
        f"{cell.count:,} x {cell.tier}"
        + (f" of {counted(cell.hosts, 'host')}" if cell.hosts else "")
        for cell in tenant.cells
    ]
    return f"{', '.join(cells)}; {counted(tenant.kept_hosts, 'host')} kept" if cells else ""


def answer_text(answer: placement_pb2.Answer) -> str:
    rows = [("outcome", outcome(answer))]
    if answer.reason:
        rows.append(("reason", answer.reason))
    if answer.preempted_jobs:
        rows.append(("preempts", counted(answer.preempted_jobs, "job")))
    if answer.shrunk_jobs:
        rows.append(("shrinks", counted(answer.shrunk_jobs, "job")))
    if answer.HasField("placement"):
        rows += placement_rows(answer.placement)
    lines = shortages_text(answer.spare_shortages).splitlines()
    return columns(rows + [("warning", line) for line in lines])


def change_text(change: service_pb2.WatchJobsResponse) -> str:
    kind = enum_word(change, "change")
    job = change.job
    parts = [str(change.version), time_text(change.change_time), kind, job.name, job_state(job)]
    return one_line("  ".join([*parts, job.reason] if job.reason else parts))


def hosts_change_text(change: service_pb2.WatchHostsResponse) -> str:
    """Write a line for each host that changed."""
    begin = f"{change.version}  {time_text(change.change_time)}"
    rows = ((host.name, enum_word(host, "state"), host_words(host)) for host in change.hosts)
    removed = ((host, "removed", "not in the fabric any more") for host in change.removed)
    lines = (one_line("  ".join(filter(None, (begin, *row)))) for row in (*rows, *removed))
    return "\n".join(lines)


HOSTS = ListTable(
    (
        Column("NAME", lambda host: host.name),
        Column("STATE", lambda host: host_state(host)),
        Column(
            "SINCE",
            lambda host: time_text(host.update_time) if host.HasField("update_time") else "-",
            is_minor=True,
        ),
        Column("JOB", lambda host: _holders(host)),
        Column("BLOCK", lambda host: _block(host), is_right=True),
        Column("GPUS", lambda host: _gpus(host), is_right=True, is_minor=True),
        Column("REPORTS", lambda host: _number(host.record.reports), is_right=True, is_minor=True),
        Column(
            "FAILURES", lambda host: _number(host.record.failures), is_right=True, is_minor=True
        ),
        Column("DOMAINS", lambda host: " ".join(host.domains), is_wide=True),
        Column("REASON", lambda host: host_words(host), is_text=True),
        Column("SHARES", lambda host: _shares(host), is_wide=True, is_text=True),
        Column("BURN-IN", lambda host: measures_text(host.record), is_wide=True, is_text=True),
        Column("PROBE", lambda host: probe_text(host.probe), is_wide=True, is_text=True),
        Column("ETAG", lambda host: host.etag, is_wide=True),
    ),
    "no hosts",
)


def hosts_text(hosts: Sequence[host_pb2.Host]) -> str:
    return HOSTS.text(hosts)


def host_state(host: host_pb2.Host) -> str:
    return enum_word(host, "state")


def _holders(host: host_pb2.Host) -> str:
    """The job, or those that share the host; of many the first."""
    if len(host.parts) > 3:
        return f"{host.parts[0].job} and {len(host.parts) - 1} more"
    return ",".join(part.job for part in host.parts) or host.job or "-"


def _shares(host: host_pb2.Host) -> str:
    """The GPUs of each job that shares the host."""
    return "; ".join(f"{part.job}: {gpus_text(part.gpus)}" for part in host.parts)


def _gpus(host: host_pb2.Host) -> str:
    """How many of its GPUs jobs hold: `3/8`."""
    held = sum(len(part.gpus) for part in host.parts)
    held = held or (host.gpu_count if host.job else 0)
    return f"{held}/{host.gpu_count}"


def _block(host: host_pb2.Host) -> str:
    if host.parts:
        return "part"
    if host.HasField("block"):
        return str(host.block)
    return "spare" if host.job and host.job != HIDDEN else "-"


def host_text(host: host_pb2.Host) -> str:
    return HOSTS.describe(host)


def measures_text(record: host_pb2.HostRecord) -> str:
    """Return what the newest burn-in measured, and how long ago that was; "" without one."""
    if not record.measures:
        return ""
    said = ", ".join(f"{name} {value:.4g}" for name, value in sorted(record.measures.items()))
    return f"{said}, {_age_text(record.measure_time)}"


def probe_text(probe: host_pb2.HostProbe) -> str:
    """Return what the agent has read, and how long ago that was; "" where it has not."""
    return f"{probe.readings}, {_age_text(probe.probe_time)}" if probe.readings else ""


def _age_text(moment: Timestamp) -> str:
    return f"{seconds_text(max(0, int(time.time() - moment.seconds)))} ago"


def measures_table(answer: service_pb2.ListHostsResponse) -> str:
    """Return a line for each host: its name, its state, and what was measured or why it is out."""
    rows = [("HOST", "STATE", "MEASURED")]
    for host in answer.hosts:
        state = enum_word(host, "state")
        words = filter(None, (host_words(host), measures_text(host.record)))
        rows.append((host.name, state, "; ".join(words)))
    return columns(rows)


def host_words(host: host_pb2.Host) -> str:
    """Say why a host is in its state, which cordon of an operator outlasts that, and what marks it
    has."""
    words = [host.reason] if host.reason else []
    if host.cordoned and host.state not in _CORDONED:
        words.append("cordoned" + (f": {host.cordon_reason}" if host.cordon_reason else ""))
    words += ["early life"] if host.record.early_life else []
    words += ["lemon"] if host.record.lemon else []
    words += ["slower than others"] if host.record.slow else []
    words += [f"probe: {host.record.findings}"] if host.record.findings else []
    return "; ".join(words)


_CORDONED = (host_pb2.HOST_STATE_CORDONED, host_pb2.HOST_STATE_DRAINING)


def _signal(name: str) -> Callable[[host_pb2.Host], str]:
    return lambda host: f"{getattr(host.record.lemon_signals, name):g}"


# With the seven signals of each host.
LEMONS = ListTable(
    (
        Column("NAME", lambda host: host.name),
        Column("STATE", host_state),
        *(
            Column(head, _signal(field.name), is_right=True)
            for head, field in zip(
                ("EXCLUDED", "XIDS", "TICKETS", "OUT", "MULTI", "SINGLE", "RATE"),
                host_pb2.LemonSignals.DESCRIPTOR.fields,
                strict=True,
            )
        ),
        Column("OVER THRESHOLD", lambda host: ", ".join(host.record.over_threshold), is_text=True),
    ),
    "no lemons",
)


def placement_rows(placement: placement_pb2.Placement) -> list[tuple[str, str]]:
    rows = [
        ("hosts", f"{placement.host_count:,}: {host_ranges(placement.hosts)}"),
        *([("part", gpus_text(placement.gpus))] if placement.gpus else []),
        ("spares", f"{placement.spare_count:,}: {host_ranges(placement.spares)}"),
        *(
            [("lent", f"{len(placement.lent):,}: {host_ranges(placement.lent)}")]
            if placement.lent
            else []
        ),
    ]
    step, cuts = [], []
    if placement.HasField("step_time"):
        times = (placement.step_time, placement.step_time_lower_bound)
        step.append(("step", step_text(*(time.ToNanoseconds() / 10**9 for time in times))))
    for depth, cut in enumerate(placement.cuts):
        axes = ", ".join(f"{axis} {bytes_text(n)}" for axis, n in sorted(cut.by_axis.items()))
        text = f"{bytes_text(cut.bytes_per_step)} per step" + (f" ({axes})" if axes else "")
        cuts.append((f"cut {cut.tier}", text + ("" if depth else _certificate(placement))))
    is_by_time = placement.objective == placement_pb2.OBJECTIVE_TIME
    rows += step + cuts if is_by_time else cuts + step
    rows += [("note", note) for note in placement.notes]
    return rows


def _certificate(placement: placement_pb2.Placement) -> str:
    if placement.optimal:
        return ", proved optimal"
    bound = placement.lower_bound_bytes_per_step
    least = f", all layouts at least {bytes_text(bound)}"
    return f"{least}, {gap_text(placement.gap)}" if bound else ""


def host_ranges(names: Sequence[str]) -> str:
    """Write hosts as ranges, `z0-r001-h[01-16]`; of a scattered gang only the first ranges."""
    if not names:
        return "-"
    ranges = list(hostlist.split(hostlist.fold(list(names))))
    more = len(ranges) - _SHOWN_RANGES
    return ",".join(ranges[:_SHOWN_RANGES]) + (f" and {more:,} more ranges" if more > 0 else "")


def time_text(moment: Timestamp) -> str:
    """Show a time to the second, in UTC."""
    return moment.ToJsonString()[:19] + "Z"
