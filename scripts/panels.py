"""The panels of the dashboard: what each shows, and the queries behind it.

A cluster is a scrape job of Prometheus. Its servers share a store and all know the state:
what they all know is taken by max over the servers of a job, then summed over jobs. What
each server does by itself is summed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_JOB = 'job=~"$job"'
RUNNING, SICK, WAITING = 'use="running"', 'state!="healthy"', 'state="queued"'
OPTIMAL, COMMIT = 'proof="optimal"', 'stage="commit"'


@dataclass(frozen=True, slots=True)
class Query:
    """`legend`: how each series is called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit`: as Grafana calls it. `stack`: series add up."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    stack: bool = False


def _most(metric: str, by: str = "", labels: str = "") -> str:
    """The largest value of a gauge."""
    inside = f"{metric}{{{_JOB}{',' if labels else ''}{labels}}}"
    return f"max by ({by}) ({inside})" if by else f"max({inside})"


def _shared_gauge(metric: str, by: str = "", labels: str = "") -> str:
    """A gauge that every server of a job shows alike, over all jobs."""
    return _over_jobs(_most(metric, _with_job(by), labels), by)


def _rate(metric: str, by: str, labels: str = "") -> str:
    """Events a second, counted once however many servers of a job know of them."""
    inside = f"rate({metric}{{{_JOB}{',' if labels else ''}{labels}}}[$__rate_interval])"
    each = f"sum by ({_with_job(f'instance, {by}' if by else 'instance')}) ({inside})"
    return _over_jobs(f"max by ({_with_job(by)}) ({each})", by)


def _with_job(by: str) -> str:
    return f"job, {by}" if by else "job"


def _over_jobs(expr: str, by: str) -> str:
    return f"sum by ({by}) ({expr})" if by else f"sum({expr})"


def _done(metric: str, by: str, labels: str = "") -> str:
    """Return the rate, a second, of work that each server does by itself."""
    inside = f"rate({metric}{{{_JOB}{',' if labels else ''}{labels}}}[$__rate_interval])"
    return f"sum by ({by}) ({inside})" if by else f"sum({inside})"


def _quantiles(metric: str, by: str = "", labels: str = "") -> Iterator[Query]:
    """Median and 99th percentile."""
    name = f"{{{{{by}}}}} " if by else ""
    for share, called in ((0.5, "median"), (0.99, "99 %")):
        buckets = _done(f"{metric}_bucket", f"le{', ' if by else ''}{by}", labels)
        yield Query(f"histogram_quantile({share}, {buckets})", f"{name}{called}")


def _stat(title: str, text: str, unit: str, expr: str) -> Panel:
    return Panel(title, text, unit, (Query(expr),), "stat")


_BOUND = _shared_gauge("muster_cut_lower_bound_bytes_per_step", "tier")

ROWS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        _stat(
            "Leader",
            "Servers that decide and write; 1 is right.",
            "none",
            f"sum(muster_leader{{{_JOB}}})",
        ),
        _stat("Log version", "Number of the newest event.", "none", _most("muster_log_version")),
        _stat(
            *("GPUs in use", "GPUs of running gangs over all.", "percentunit"),
            f"sum({_shared_gauge('muster_gpus', 'zone', RUNNING)})"
            f" / sum({_shared_gauge('muster_gpus', 'zone, use')})",
        ),
        _stat(
            *("Hosts out", "Hosts that are not healthy.", "none"),
            f"sum({_shared_gauge('muster_hosts', 'zone, state', SICK)})",
        ),
        _stat(
            *("Jobs waiting", "Jobs in the queue.", "none"),
            f"sum({_shared_gauge('muster_jobs', 'tenant', WAITING)})",
        ),
        _stat(
            "Oldest wait",
            "Since the oldest waiting job was submitted.",
            "s",
            _most("muster_oldest_wait_seconds"),
        ),
    ),
    "GPUs": (
        Panel(
            *("GPUs by use", "Every GPU has one use; out: not healthy, and no gang's.", "none"),
            (Query(f"sum by (use) ({_shared_gauge('muster_gpus', 'zone, use')})", "{{use}}"),),
            stack=True,
        ),
        Panel(
            *("Free GPUs by zone", "Of healthy hosts that nobody holds.", "none"),
            (Query(_most("muster_gpus", "job, zone", 'use="free"'), "{{job}} {{zone}}"),),
            stack=True,
        ),
        Panel(
            *("Spares left by zone", "Healthy hosts that jobs hold to swap in.", "none"),
            (Query(_most("muster_spare_hosts", "job, zone"), "{{job}} {{zone}}"),),
        ),
        Panel(
            *("What GPU time goes to", "GPUs, by the accounts of jobs; see GetJob.", "none"),
            (Query(_rate("muster_gpu_seconds_total", "part"), "{{part}}"),),
            stack=True,
        ),
        Panel(
            *("Hosts not healthy", "Cordoned, draining, failed.", "none"),
            (
                Query(
                    f"sum by (state) ({_shared_gauge('muster_hosts', 'zone, state', SICK)})",
                    "{{state}}",
                ),
            ),
            stack=True,
        ),
    ),
    "Queue": (
        Panel(
            *("Waiting jobs by tenant", "Jobs in the queue.", "none"),
            (Query(_shared_gauge("muster_jobs", "tenant", WAITING), "{{tenant}}"),),
            stack=True,
        ),
        Panel(
            *("GPUs asked for by tenant", "Of waiting jobs, required spares included.", "none"),
            (Query(_shared_gauge("muster_queued_gpus", "tenant"), "{{tenant}}"),),
            stack=True,
        ),
        Panel(
            *("Oldest wait by tenant", "Since the oldest waiting job was submitted.", "s"),
            (Query(_most("muster_oldest_wait_seconds", "tenant"), "{{tenant}}"),),
        ),
        Panel(
            *("Wait until start by size", "Of jobs that started, from their submission.", "s"),
            tuple(_quantiles("muster_wait_seconds", "size")),
        ),
        Panel(
            *("Jobs a second", "Accepted, started and ended.", "none"),
            (
                Query(_rate("muster_jobs_submitted_total", ""), "accepted"),
                Query(_rate("muster_events_total", "", 'type="JobStarted"'), "started"),
                Query(_rate("muster_jobs_ended_total", "outcome"), "{{outcome}}"),
            ),
        ),
        Panel(
            *("Live jobs", "By state, over all tenants.", "none"),
            (
                Query(
                    f"sum by (state) ({_shared_gauge('muster_jobs', 'tenant, state')})", "{{state}}"
                ),
            ),
            stack=True,
        ),
    ),
    "Placement": (
        Panel(
            *("Bytes over each tier", "Of all running gangs, per step.", "decbytes"),
            (Query(_shared_gauge("muster_cut_bytes_per_step", "tier"), "{{tier}}"),),
        ),
        Panel(
            *(
                "Outermost cut and its bound",
                "What crosses zones, and what must cross them.",
                "decbytes",
            ),
            (
                Query(
                    f"{_shared_gauge('muster_cut_bytes_per_step', 'tier')} and on (tier) {_BOUND}",
                    "cut",
                ),
                Query(_BOUND, "bound"),
            ),
        ),
        Panel(
            *("Proved share", "Running gangs whose cut is proved least, over all.", "percentunit"),
            (
                Query(
                    f"{_shared_gauge('muster_running_gangs', '', OPTIMAL)}"
                    f" / (sum({_shared_gauge('muster_running_gangs', 'proof')}) > 0)",
                    "optimal",
                ),
            ),
        ),
        Panel(
            *(
                "Gap at the start",
                "Of the step or cut: what the job minimises.",
                "percentunit",
            ),
            tuple(_quantiles("muster_gap_ratio")),
        ),
        Panel(
            *("Time to place a gang", "One call of the solver.", "s"),
            tuple(_quantiles("muster_stage_seconds", "", 'stage="solve"')),
        ),
        Panel(
            *("Time to decide", "One walk of the queue, with all its placements.", "s"),
            tuple(_quantiles("muster_stage_seconds", "", 'stage="decide"')),
        ),
    ),
    "Failures": (
        Panel(
            *("Degraded uplinks", "What uplinks carry of what they were built for.", "percentunit"),
            (Query(_most("muster_link_share_ratio", "job, link"), "{{job}} {{link}}"),),
        ),
        Panel(
            *("Hosts that failed, an hour", "By the signal that took them out.", "none"),
            (Query(f"3600 * {_rate('muster_host_failures_total', 'signal')}", "{{signal}}"),),
            stack=True,
        ),
        Panel(
            *("Swaps, an hour", "Gangs of which hosts were replaced, by why.", "none"),
            (Query(f"3600 * {_rate('muster_swaps_total', 'cause')}", "{{cause}}"),),
            stack=True,
        ),
        Panel(
            *("Hosts swapped in, an hour", "From the gang's spares, or free ones.", "none"),
            (Query(f"3600 * {_rate('muster_swapped_hosts_total', 'source')}", "{{source}}"),),
            stack=True,
        ),
        Panel(
            *(
                "Restarts and requeues, an hour",
                "Attempts after the first; gangs sent back.",
                "none",
            ),
            (
                Query(f"3600 * {_rate('muster_restarts_total', 'how')}", "restart by {{how}}"),
                Query(f"3600 * {_rate('muster_requeues_total', 'cause')}", "requeued: {{cause}}"),
                Query(f"3600 * {_rate('muster_gang_resizes_total', 'how')}", "resized: {{how}}"),
            ),
        ),
    ),
    "Service": (
        Panel(
            *("Calls a second", "By method.", "reqps"),
            (Query(_done("muster_rpc_total", "method"), "{{method}}"),),
        ),
        Panel(
            *("Calls that did not go well", "By method and code.", "reqps"),
            (
                Query(
                    _done("muster_rpc_total", "method, code", 'code!~"OK|CANCELLED"'),
                    "{{method}} {{code}}",
                ),
            ),
        ),
        Panel(
            *("Time to answer", "99th percentile by method; watches are not timed.", "s"),
            (
                Query(
                    f"histogram_quantile(0.99, {_done('muster_rpc_seconds_bucket', 'le, method')})",
                    "{{method}}",
                ),
            ),
        ),
        Panel(
            *("Time to append", "Until a batch of events is durable.", "s"),
            tuple(_quantiles("muster_stage_seconds", "", 'stage="append"')),
        ),
        Panel(
            *("Wait for the writer", "From a command's arrival until it is taken up.", "s"),
            tuple(_quantiles("muster_stage_seconds", "", 'stage="queue"')),
        ),
        Panel(
            *("Events", "A second, and in one append.", "none"),
            (
                Query(_rate("muster_events_total", ""), "a second"),
                Query(
                    f"{_done('muster_append_events_sum', '')}"
                    f" / {_done('muster_append_events_count', '')}",
                    "an append",
                ),
            ),
        ),
        Panel(
            *("Plans that fell", "Of all; the state had moved on.", "percentunit"),
            (
                Query(
                    f"{_done('muster_commit_conflicts_total', '')}"
                    f" / ({_done('muster_stage_seconds_count', '', COMMIT)} > 0)",
                    "conflicts",
                ),
            ),
        ),
        Panel(
            *("Watches", "Open streams, and changes that the slowest has yet to send.", "none"),
            (
                Query(f"sum(muster_watch_streams{{{_JOB}}})", "open"),
                Query(f"max(muster_watch_lag_changes{{{_JOB}}})", "behind"),
            ),
        ),
        Panel(
            *("Store", "Bytes of its files and free beside them; SQLite only.", "bytes"),
            (
                Query(f"muster_store_bytes{{{_JOB}}}", "{{instance}} used"),
                Query(f"muster_store_free_bytes{{{_JOB}}}", "{{instance}} free"),
            ),
        ),
        Panel(
            *("Process", "Memory and processor of each server.", "none"),
            (
                Query(f"process_resident_memory_bytes{{{_JOB}}} / 1e9", "{{instance}} GB"),
                Query(
                    f"rate(process_cpu_seconds_total{{{_JOB}}}[$__rate_interval])",
                    "{{instance}} cores",
                ),
            ),
        ),
    ),
}
