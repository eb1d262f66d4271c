"""What clusters offer for a job, why one was chosen, and the jobs of all of them, as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from muster.structs import replace
from scheduler.cli.render import messages
from scheduler.cli.render.names import as_typed
from scheduler.cli.render.tables import Column, ListTable
from scheduler.cli.render.text import bytes_text, columns, counted, seconds_text
from scheduler.client.offers import Offer, StartKind, compared, rank
from scheduler.client.route import ClusterView, Routed
from scheduler.v1 import job_pb2


def best_of(views: Sequence[ClusterView]) -> str:
    """The cluster with the best offer that can be taken; "" for none."""
    offers = {
        view.name: view.offer
        for view in views
        if view.offer is not None and not view.offer.is_impossible
    }
    return next(iter(rank(offers)), "")


def views_text(views: Sequence[ClusterView], chosen: str) -> str:
    """A row for each cluster, in the order in which they were named."""
    rows = [["CLUSTER", "STARTS", "STOPS", "STEP", "BOUND", "CUT", "WHY"]]
    for view in views:
        offer = view.offer or Offer(StartKind.NEVER)
        step, least = offer.step_s, offer.least_step_s
        rows.append(
            [
                view.name,
                _starts(offer),
                _stops(offer),
                "-" if step is None else seconds_text(step),
                "-" if least is None else seconds_text(least),
                "-" if offer.cut_bytes is None else bytes_text(offer.cut_bytes),
                _why(view, views, chosen),
            ]
        )
    return columns(rows)


def _starts(offer: Offer) -> str:
    match offer.start:
        case StartKind.NOW | StartKind.BY_STOPPING_OTHERS:
            return "now"
        case StartKind.LATER:
            return _moment(offer.start_s)
        case StartKind.NOT_BEFORE:
            return f">{_moment(offer.start_s)}"
        case StartKind.UNKNOWN:
            return "unknown"
    return "-"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _stops(offer: Offer) -> str:
    if offer.start is not StartKind.BY_STOPPING_OTHERS:
        return "-"
    parts = [f"{offer.preempted:,} preempted"] if offer.preempted else []
    parts += [f"{offer.shrunk:,} shrunk"] if offer.shrunk else []
    return ", ".join(parts)


def _why(view: ClusterView, views: Sequence[ClusterView], chosen: str) -> str:
    if view.silence:
        return view.silence
    if view.made is not None:
        return "has the job"
    if view.left:
        owner = next((other.name for other in views if other.id == view.left), view.owner)
        return f"has left the job to {owner}"
    if view.offer is None:
        return f"refuses: {view.refusal.removeprefix('taken: ')}"
    if view.name == chosen:
        return "best"
    if view.offer.is_impossible:
        return f"never fits: {view.offer.reason}"
    best = next((other.offer for other in views if other.name == chosen), None)
    if best is None:
        return view.offer.reason
    reason = f": {view.offer.reason}" if view.offer.reason else ""
    return f"{compared(view.offer, best)}{reason}"


def views_mapping(views: Sequence[ClusterView], chosen: str) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [
        {
            "name": view.name,
            "is_best": view.name == chosen,
            "has_job": view.made is not None,
            "starts": None if view.offer is None else view.offer.start.name.lower(),
            "start_time": None
            if view.offer is None or not view.offer.start_s
            else _moment(view.offer.start_s),
            "preempted_jobs": None if view.offer is None else view.offer.preempted,
            "shrunk_jobs": None if view.offer is None else view.offer.shrunk,
            "step_s": None if view.offer is None else view.offer.step_s,
            "step_lower_bound_s": None if view.offer is None else view.offer.least_step_s,
            "cut_bytes_per_step": None if view.offer is None else view.offer.cut_bytes,
            "is_silent": bool(view.silence),
            "why": _why(view, views, chosen),
        }
        for view in views
    ]


def routed_text(routed: Routed) -> str:
    """Where the job is, the job, and what each cluster offered."""
    head = f"cluster    {routed.cluster}"
    if routed.is_repeat:
        state = messages.job_state(routed.job)
        head = f"cluster    {routed.cluster}, which has it since an earlier submit ({state} now)"
    parts = [f"{head}\n{messages.job_text(as_typed(routed.job))}"]
    if not routed.is_repeat:
        parts.append(views_text(routed.views, routed.cluster))
    elif silent := sum(bool(view.silence) for view in routed.views):
        parts.append(f"{counted(silent, 'cluster')} of {len(routed.views)} did not answer")
    return "\n\n".join(parts)


def routed_mapping(routed: Routed) -> dict[str, Any]:
    mapping = messages.to_mapping(as_typed(routed.job))
    return {
        "name": mapping["name"],
        "cluster": routed.cluster,
        "is_repeat": routed.is_repeat,
        "request_id": routed.request_id,
        "job": mapping,
        "clusters": views_mapping(routed.views, "" if routed.is_repeat else routed.cluster),
    }


def jobs_text(rows: Sequence[tuple[str, job_pb2.Job]]) -> str:
    """The table of `muster jobs`, with the cluster before each job."""
    table = messages.jobs_table([job for _, job in rows])
    heads = [replace(column, cell=partial(_of_job, column)) for column in table.columns]
    return ListTable((Column("CLUSTER", lambda row: row[0]), *heads), table.nothing).text(rows)


def _of_job(column: Column, row: tuple[str, job_pb2.Job]) -> str:
    return column.cell(row[1])
