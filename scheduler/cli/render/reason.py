"""Reasons and what-ifs as tables: the sentence, then the facts behind it."""

from __future__ import annotations

from scheduler.cli.render.messages import answer_text, job_state, placement_rows, time_text
from scheduler.cli.render.restart import options_text, shortages_text
from scheduler.cli.render.text import (
    bytes_text,
    columns,
    counted,
    enum_word,
    percent_text,
    seconds_text,
    table,
)
from scheduler.v1 import advice_pb2, job_pb2, placement_pb2, service_pb2

MOST_OBSTACLES = 20
MOST_BLOCKS = 4
MOST_CHAIN = 12

_BASES = {
    advice_pb2.END_BASIS_STATED: "by its limit",
    advice_pb2.END_BASIS_ASSUMED: "assumed: it states no limit",
    advice_pb2.END_BASIS_OUTRUN: "a guess: it runs past its limit",
}


def dry_run_text(answer: placement_pb2.Answer, estimate: job_pb2.StartEstimate) -> str:
    """Write what a job would get now, and when it would start; an empty estimate is left out."""
    rows = columns(_estimate_rows(estimate)) if estimate.assumption else ""
    return "\n\n".join(filter(None, (answer_text(answer), rows)))


def explain_text(answer: service_pb2.ExplainJobResponse) -> str:
    head = [("job", answer.name), ("state", job_state(answer))]
    facts = reason_rows(answer.reason)
    if answer.HasField("start_estimate"):
        facts = [row for row in facts if row[0] != "has room"]
        facts += _estimate_rows(answer.start_estimate)
    parts = [columns(head + facts)]
    if answer.HasField("what_if"):
        parts.append(_what_if_text(answer.what_if))
    else:
        parts += _chain(answer.start_estimate)
        parts += _tables(answer.reason)
        if answer.HasField("restart"):
            options = options_text(answer.restart.restart_options)
            parts.append(f"if {answer.restart.host} failed now\n{options}")
    if answer.spare_shortages:
        parts.append(shortages_text(answer.spare_shortages))
    if answer.shared_uplinks:
        rows = [(s.link, s.job, percent_text(s.busy_share)) for s in answer.shared_uplinks]
        parts.append(table(("SHARED UPLINK", "WITH", "KEEPS BUSY"), rows))
    return "\n\n".join(parts)


def _estimate_rows(estimate: job_pb2.StartEstimate) -> list[tuple[str, str]]:
    if estimate.HasField("start_time"):
        when = f"about {time_text(estimate.start_time)}"
    elif estimate.HasField("not_before_time"):
        when = f"not before {time_text(estimate.not_before_time)}: so far the queue was simulated"
    else:
        return [("starts", "cannot be foreseen")]
    return [("starts", when), ("estimate", estimate.assumption)]


def _chain(estimate: job_pb2.StartEstimate) -> list[str]:
    """The starts before it, and its own."""
    head = ("AHEAD", "STARTS", "ENDS", "AFTER")
    rows = [
        (s.job, time_text(s.start_time), time_text(s.end_time), ", ".join(s.after[:4]) or "-")
        for s in estimate.chain
    ]
    if len(rows) > MOST_CHAIN:
        left_out = (f"... {len(rows) - MOST_CHAIN:,} more", "", "", "")
        rows = [*rows[: MOST_CHAIN // 2], left_out, *rows[-MOST_CHAIN // 2 :]]
    return [columns([head, *rows])] if len(rows) > 1 else []


def _what_if_text(answer: advice_pb2.WhatIf) -> str:
    rows = [("result", answer.sentence)]
    if answer.HasField("placement"):
        rows += placement_rows(answer.placement)
    elif answer.state == job_pb2.JOB_STATE_QUEUED:
        rows += reason_rows(answer.reason)[1:]
    rows += [
        (verb, ", ".join(jobs))
        for verb, jobs in (("also starts", answer.starts), ("stops", answer.stops))
        if jobs
    ]
    return columns(rows)


def reason_rows(reason: advice_pb2.Reason) -> list[tuple[str, str]]:
    rows = [("reason", reason.sentence)]
    if reason.missing_hosts:
        rows.append(("missing", counted(reason.missing_hosts, "host")))
    if reason.HasField("start_time"):
        rows.append(("has room", f"by {time_text(reason.start_time)}"))
    if limit_s := reason.passing_time_limit.seconds:
        rows.append(("would start", f"with time_limit_s: {limit_s}"))
    if reason.reserved_in:
        rows.append(("reserved in", ", ".join(reason.reserved_in)))
    if reason.waits_for:
        rows.append(("waits for", ", ".join(reason.waits_for)))
    when = f" at {time_text(reason.preempt_time)}" if reason.HasField("preempt_time") else ""
    if reason.preempts:
        rows.append(("preempts", ", ".join(reason.preempts) + when))
    if reason.shrinks:
        sizes = ", ".join(f"{shrink.job} to dp {shrink.dp:,}" for shrink in reason.shrinks)
        rows.append(("shrinks", sizes + when))
    return rows


def _tables(reason: advice_pb2.Reason) -> list[str]:
    tables = []
    if reason.obstacles:
        shown = [_obstacle_row(obstacle) for obstacle in reason.obstacles[:MOST_OBSTACLES]]
        tables.append(table(("OBSTACLE", "NAME", "HOSTS", "UNTIL"), shown))
        if (more := len(reason.obstacles) - MOST_OBSTACLES) > 0:
            tables[-1] += f"\nand {more:,} more"
    if reason.rooms:
        rooms = [(r.domain, str(r.free_hosts), str(r.usable_hosts)) for r in reason.rooms]
        tables.append(table(("DOMAIN", "FREE", "USABLE"), rooms))
    return tables


def _obstacle_row(obstacle: advice_pb2.Obstacle) -> tuple[str, str, str, str]:
    kind = enum_word(obstacle, "kind").replace("_", " ")
    until = "-"
    if obstacle.HasField("clear_time"):
        basis = _BASES.get(obstacle.basis)
        until = time_text(obstacle.clear_time) + (f" ({basis})" if basis else "")
    return kind, obstacle.name or "-", f"{obstacle.hosts:,}", until


def slots_text(answer: service_pb2.ListSlotsResponse) -> str:
    """Write a table of slots: a column for each size, a line for each domain."""
    sizes = [f"{slot.gpus:,}" for slot in answer.slots]
    head = ("JOBS OF SIZE (GPUS)", *sizes, "FREE HOSTS", "USABLE")
    hosts = (f"{answer.free_hosts:,}", f"{answer.usable_hosts:,}")
    rows = [("total", *(f"{slot.in_all:,}" for slot in answer.slots), *hosts)]
    if answer.domains:
        rows.append(("inside one domain", *(f"{slot.inside:,}" for slot in answer.slots), "", ""))
    rows += [
        (d.domain, *(f"{n:,}" for n in d.slots), f"{d.free_hosts:,}", f"{d.usable_hosts:,}")
        for d in answer.domains
    ]
    largest = f"largest for tenant {answer.tenant}: {answer.largest_gpus:,} GPUs"
    return f"{table(head, rows)}\n\n{largest}"


def proposal_text(answer: service_pb2.DefragmentResponse) -> str:
    """Write a proposal of moves: its sentence, a line for each gang, and the hosts that its blocks
    leave and join."""
    if not answer.moves:
        return answer.sentence
    if any(move.saved_gpu_hours for move in answer.moves):
        shown = table(("JOB", "GPU-HOURS", "SAVES", "STEP", "BLOCKS"), map(_faster, answer.moves))
    else:
        shown = table(("JOB", "GPU-HOURS", "CUT", "BLOCKS"), map(_tidier, answer.moves))
    hint = f"--apply --etag {answer.etag} applies them"
    done = "moves applied" if answer.applied else f"not applied: {hint}"
    return f"{answer.sentence}\n\n{shown}\n\n{done}"


def _faster(move: advice_pb2.Relocation) -> tuple[str, ...]:
    before, after = move.step_time_before, move.step_time_after
    was = seconds_text(before.ToNanoseconds() / 1e9) if before.ToNanoseconds() else "never"
    step = f"{was} -> {seconds_text(after.ToNanoseconds() / 1e9)}"
    hours = (f"{move.lost_gpu_hours:,.1f}", f"{move.saved_gpu_hours:,.1f}")
    return (move.job, *hours, step, _blocks(move))


def _tidier(move: advice_pb2.Relocation) -> tuple[str, ...]:
    cuts = zip(move.cuts_before, move.cuts_after, strict=True)
    changed = [f"{a.tier} {bytes_text(a.bytes_per_step)}" for b, a in cuts if a != b]
    return (move.job, f"{move.lost_gpu_hours:,.1f}", ", ".join(changed) or "as now", _blocks(move))


def _blocks(move: advice_pb2.Relocation) -> str:
    shown = [
        f"{block_move.block}: {block_move.left} -> {block_move.joined}"
        for block_move in move.blocks[:MOST_BLOCKS]
    ]
    more = len(move.blocks) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
