"""Every metric that muster exposes: its name, what it counts in which unit, its labels.

docs/observability.md lists them from here. Labels have few values: tenants and outermost
domains are the operator's, everything else is a closed list. Per-job series are asked for
separately; their label is `job_name`, since Prometheus calls what it scrapes `job`.
"""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct


class MetricKind(StrEnum):
    """Kind of metric in Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@struct(frozen=True, slots=True)
class Metric:
    """One metric. `text`: one sentence that names the unit. A counter's name ends in `_total`."""

    name: str
    kind: MetricKind
    text: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"muster_{name}", MetricKind.GAUGE, text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"muster_{name}_total", MetricKind.COUNTER, text, labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"muster_{name}", MetricKind.HISTOGRAM, text, labels)


NAMING = frozenset({"tenant", "job_name"})  # labels whose values are names of tenants or jobs

# Of the state.
JOBS = _gauge("jobs", "Live jobs.", "tenant", "state")
QUEUED_GPUS = _gauge("queued_gpus", "GPUs that waiting jobs ask for.", "tenant")
OLDEST_WAIT = _gauge(
    "oldest_wait_seconds", "Seconds since the oldest waiting job was submitted.", "tenant"
)
HOSTS = _gauge("hosts", "Hosts by health.", "zone", "state")
GPUS = _gauge("gpus", "GPUs by use.", "zone", "use")
SPARE_HOSTS = _gauge("spare_hosts", "Healthy hosts that jobs hold as spares.", "zone")
WITHHELD_HOSTS = _gauge(
    "withheld_hosts",
    "Hosts that another scheduler keeps from gangs: `refused` them, or has them cordoned or held.",
    "source",
    "cause",
)
CUT = _gauge("cut_bytes_per_step", "Bytes per step of all running gangs over a tier.", "tier")
BOUND = _gauge(
    "cut_lower_bound_bytes_per_step",
    "Lower bound of bytes per step of these gangs over the outermost tier.",
    "tier",
)
GANGS = _gauge("running_gangs", "Running gangs by proof of their cut.", "proof")
LINK_SHARE = _gauge(
    "link_share_ratio",
    "Share of its capacity as built that an uplink carries; only of uplinks that carry less.",
    "link",
)
JOB_CUT = _gauge(
    "job_cut_bytes_per_step", "Bytes per step of a gang over a tier.", "job_name", "tier"
)
JOB_GAP = _gauge(
    "job_gap_ratio",
    "Gap of a gang, of its step or cut: what it minimises.",
    "job_name",
)
JOB_ETTR = _gauge(
    "job_ettr_ratio", "Productive time of a live job over the time since its submit.", "job_name"
)
JOB_GOODPUT = _gauge(
    "job_goodput_ratio", "Productive GPU time of a live job over what it held.", "job_name"
)
JOB_STEP = _gauge("job_step_seconds", "Seconds of a step, as the ranks of a gang say.", "job_name")
JOB_MODEL_STEP = _gauge(
    "job_model_step_seconds", "Seconds of a step of a gang that runs, by the model.", "job_name"
)
JOB_SLOWER = _gauge(
    "job_slower_than_model", "1: the step takes longer than its model's interval.", "job_name"
)

# Of the server.
TASK_RESTARTS = _counter(
    "task_restarts", "Long-lived tasks of the server that ended and began again.", "task"
)
REFUSED_MESSAGES = _counter(
    "refused_messages",
    "Messages of agents, whose session each ended, and reports of ranks that could not be read;"
    " calls that Kubernetes forbade.",
    "door",
)
EXPIRY = _gauge(
    "credential_expiry_seconds",
    "Seconds until the first certificate of this server, or token of its auth file, expires.",
    "kind",
)
CUT_OFF = _gauge(
    "cut_off_hosts", "Silent hosts that are taken for cut off, and not for lost.", "domain"
)
BUILD = _gauge("build_info", "Always 1; the release that runs.", "release")
FABRIC = _gauge("fabric_info", "Always 1; the fabric and its content.", "fabric", "digest")
READY = _gauge("ready", "1 once the log is replayed.")
LEADER = _gauge("leader", "1 while this server decides and writes.")
VERSION = _gauge("log_version", "Number of the log's newest event.")
REPLAY = _gauge("replay_seconds", "Seconds from opening the log to being ready.")
QUEUE = _gauge("writer_queue_entries", "Commands and plans that wait for the writer.")
WATCHES = _gauge("watch_streams", "Open watches.")
LAG = _gauge(
    "watch_lag_changes", "Changes that the slowest watch that has caught up has yet to send."
)
STORE = _gauge("store_bytes", "Bytes of the store's files (SQLite).")
ROOM = _gauge("store_free_bytes", "Bytes free on the disk of the store (SQLite).")
DISK_USED = _gauge("store_disk_used_ratio", "Share of the disk of the store in use (SQLite).")

# Of what has happened.
EVENTS = _counter("events", "Events written.", "type")
SUBMITTED = _counter("jobs_submitted", "Jobs accepted.", "tenant")
ENDED = _counter("jobs_ended", "Jobs ended.", "tenant", "outcome")
PLACEMENTS = _counter("placements", "Starts of gangs by proof of their cut.", "proof")
GAP = _histogram("gap_ratio", "Gap at each start, of the step or cut: what it minimises.")
WAIT = _histogram("wait_seconds", "Seconds from submit to first start, by GPUs.", "size")
RESTARTS = _counter("restarts", "Attempts after the first, by how they began.", "how")
REQUEUES = _counter(
    "requeues",
    "Gangs put back into the queue: failure, maintenance, preempted or time_limit.",
    "cause",
)
RESIZES = _counter("gang_resizes", "Elastic gangs that grew or shrank.", "how")
SWAPS = _counter("swaps", "Gangs of which hosts were replaced.", "cause")
SWAPPED = _counter("swapped_hosts", "Hosts that joined a gang, by their former use.", "source")
FAILURES = _counter("host_failures", "Hosts taken out of service by a signal.", "signal")
REPAIRS = _counter("host_repairs", "Hosts reported repaired.")
NOTES = _counter("host_signals", "Signals that the log records without effect.", "signal")

SPENT = _counter(
    "gpu_seconds",
    "GPU-seconds of jobs by part of their account; of a running attempt only what is certain.",
    "part",
)

# Of the work itself.
STAGES = _histogram("stage_seconds", "Seconds that each stage of a write or plan took.", "stage")
BATCHES = _histogram("append_events", "Events of one append.")
CONFLICTS = _counter("commit_conflicts", "Plans of which no action could be committed.")
CALLS = _counter("rpc", "Calls answered.", "method", "code")
CALL_SECONDS = _histogram("rpc_seconds", "Seconds to answer a call; not of watches.", "method")

METRICS: tuple[Metric, ...] = tuple(
    value for value in globals().values() if isinstance(value, Metric)
)
PER_JOB = (JOB_CUT, JOB_GAP, JOB_ETTR, JOB_GOODPUT, JOB_STEP, JOB_MODEL_STEP, JOB_SLOWER)
