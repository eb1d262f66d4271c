"""What `muster place` answers: JSON for programs, a page for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, assert_never

import numpy as np

from placement import FreeTier, Hint, count_free_domains
from placement.fabric.hostset import has, to_mask
from placement.objective.cut import cut, egress
from placement.objective.step_time import Assumptions
from placement.workload.request import (
    Answer,
    Infeasible,
    Insufficient,
    Objective,
    Placement,
    TierCut,
    Undecided,
)
from placement.workload.traffic import axis_traffic
from scheduler.cli.render.place import memory_use, step_tables, steps
from scheduler.cli.render.place.question import Question
from scheduler.cli.render.restart import shortages_text
from scheduler.cli.render.text import (
    bytes_text,
    counted,
    gap_text,
    gpus_text,
    seconds_text,
    step_text,
    table,
)
from scheduler.observe.proof import objective_gap


def outcome(answer: Answer) -> str:
    match answer:
        case Placement():
            return "placed"
        case Insufficient():
            return "insufficient"
        case Infeasible():
            return "infeasible"
        case Undecided():
            return "undecided"
    assert_never(answer)


def to_mapping(question: Question, answer: Answer, seconds: dict[str, float]) -> dict[str, Any]:
    """Return the answer as JSON values. All but `seconds` is the same in every run."""
    body: dict[str, Any]
    match answer:
        case Placement():
            body = _placed(question, answer)
        case Insufficient():
            body = {
                "reason": answer.reason,
                "needed": answer.needed,
                "free": answer.free,
                "free_by_domain": dict(answer.free_by_domain),
            }
        case Infeasible() | Undecided():
            body = {"reason": answer.reason}
        case _:
            assert_never(answer)
    head: dict[str, Any] = {
        "outcome": outcome(answer),
        "job": question.name,
        "fabric": {"name": question.fabric.name, "digest": question.fabric.digest},
    }
    if question.legal_dp:
        head |= {"dp": question.request.parallelism.dp, "legal_dp": list(question.legal_dp)}
    return {**head, **body, "seconds": seconds}


def _placed(question: Question, answer: Placement) -> dict[str, Any]:
    is_modelled = not question.cpu_ranks
    estimated = steps.estimate(question, answer, Assumptions()) if is_modelled else None
    objective = question.request.objective
    return {
        "objective": objective.value,
        "gap": objective_gap(objective, answer.cuts, answer.lower_bound, answer.step),
        "cut": {cut.tier: _cut(answer, i, cut) for i, cut in enumerate(answer.cuts)},
        "step": answer.step
        and {
            "seconds": answer.step.seconds,
            "lower_bound_seconds": answer.step.least_seconds,
            "gap": answer.step.gap,
        },
        "traffic": {
            axis.axis: {
                "size": axis.size,
                "stride": axis.stride,
                "pattern": axis.pattern.value,
                "edge_bytes_per_step": axis.edge_bytes,
            }
            for axis in axis_traffic(question.request)
        },
        "gpus_per_host": question.fabric.gpus_per_host,
        "notes": list(answer.notes),
        "domains": domains(question, answer),
        "estimate": steps.to_mapping(estimated) if estimated else None,
        "left_free": {
            tier.tier: {"whole": tier.whole, "largest_hosts": tier.largest}
            for tier in _free_domains(question, answer)
        },
        **_near_mapping(question, answer),
        **memory_use.copies_mapping(question, answer),
        "spare_shortages": [asdict(shortage) for shortage in question.shortages],
        "spares": list(question.fabric.names(answer.spares)),
        "hosts": list(question.fabric.names(answer.hosts)),
        "gpus": list(answer.gpus),
    }


def _cut(answer: Placement, depth: int, cut: TierCut) -> dict[str, Any]:
    bound = _bound(answer, depth)
    certificate = {
        "lower_bound_bytes_per_step": bound,
        "lower_bound_over": "layouts that cut nothing outside" if depth else "all layouts",
        "gap": _gap(cut, bound or 0),
        "optimal": bound == cut.bytes_per_step,
    }
    return {
        "bytes_per_step": cut.bytes_per_step,
        **(certificate if bound is not None else {}),
        "by_axis": dict(cut.by_axis),
    }


def _bound(answer: Placement, depth: int) -> int | None:
    """Return a lower bound of the cut at `depth`: of the outermost tier, or of the first that is
    cut where the tiers outside are not; else None."""
    if depth == 0:
        return answer.lower_bound
    inner = answer.inner
    here = inner is not None and inner.tier == answer.cuts[depth].tier
    return inner.bytes_per_step if inner is not None and here else None


def _gap(cut: TierCut, bound: int) -> float:
    return (cut.bytes_per_step - bound) / cut.bytes_per_step if cut.bytes_per_step else 0.0


def domains(question: Question, answer: Placement) -> list[dict[str, Any]]:
    """Return the outermost domains that hold a host or a spare of the job."""
    if not question.fabric.tiers:
        return []
    tier = question.fabric.tiers[0]
    leaving = egress(question.fabric, question.request, answer.hosts)
    hosts = np.bincount(tier.domain_by_host[list(answer.hosts)], minlength=len(tier.domains))
    spares = np.bincount(tier.domain_by_host[list(answer.spares)], minlength=len(tier.domains))
    return [
        {
            "name": name,
            "hosts": int(hosts[i]),
            "spares": int(spares[i]),
            "egress_bytes_per_step": leaving[i],
            "uplink_seconds": leaving[i] / float(tier.uplink_bytes_per_s[i]),
        }
        for i, name in enumerate(tier.domains)
        if hosts[i] or spares[i]
    ]


def to_text(question: Question, answer: Answer, seconds: dict[str, float]) -> str:
    """Write the answer for people."""
    match answer:
        case Placement():
            return _placed_text(question, answer, seconds)
        case Insufficient():
            return _insufficient_text(question, answer)
        case Infeasible() | Undecided():
            return f"{outcome(answer)}: {question.name}: {answer.reason}"
    assert_never(answer)


def _placed_text(question: Question, answer: Placement, seconds: dict[str, float]) -> str:
    ranks = question.request.parallelism.world_size
    where = " on CPUs" if question.cpu_ranks else ""
    if question.cpu_ranks:
        ranks = len(answer.hosts) * question.cpu_ranks
    head = (
        f"placed: {question.name} on {question.fabric.name}: {counted(len(answer.hosts), 'host')},"
        f" {counted(ranks, 'rank')}{where}, {counted(len(answer.spares), 'spare')}"
    )
    if answer.gpus:
        host = question.fabric.hosts[answer.hosts[0]]
        head += f"\n{gpus_text(answer.gpus)} of {host}, whose others are left to others"
    time = f"{seconds_text(seconds['solve'])} to place, {seconds_text(seconds['total'])} in all"
    notes = [_near_text(question, answer), _free_domains_text(question, answer)]
    notes += [f"note: {note}" for note in answer.notes]
    step = answer.step
    pace = f"a step: {step_text(step.seconds, step.least_seconds)}" if step else ""
    headline = _headline(answer, pace, question.request.objective)
    parts = [
        head,
        headline,
        _domains_text(question, answer),
        shortages_text(question.shortages),
        _cuts_text(answer),
        pace if pace != headline else "",
        _step_text(question, answer),
        memory_use.copies_text(question, answer),
        *notes,
        time,
    ]
    return "\n\n".join(part for part in parts if part)


def _headline(answer: Placement, pace: str, objective: Objective) -> str:
    """Say first what was minimised, and what is proved of it."""
    if objective is Objective.TIME or not answer.cuts:
        return pace
    if objective is not Objective.CUT:
        return ""
    cut, tier, bound = bytes_text(answer.cut), answer.cuts[0].tier, answer.lower_bound
    if bound == answer.cut:
        return f"between {tier}s: {cut} a step; no placement on these hosts sends less"
    proved = f"no placement on these hosts sends less than {bytes_text(bound)}"
    return f"between {tier}s: {cut} a step; {proved} ({gap_text(answer.gap)})"


def _step_text(question: Question, answer: Placement) -> str:
    if question.cpu_ranks:
        return "a step: its ranks run on CPUs, of which no step is modelled"
    estimated = steps.estimate(question, answer, Assumptions())
    return step_tables.section_text(estimated) if estimated else ""


def _domains_text(question: Question, answer: Placement) -> str:
    if not (used := domains(question, answer)):
        return ""
    heads = [question.fabric.tiers[0].name, "hosts", "spares", "leaves per step", "uplink time"]
    rows = [
        [
            domain["name"],
            f"{domain['hosts']:,}",
            f"{domain['spares']:,}",
            bytes_text(domain["egress_bytes_per_step"]),
            seconds_text(domain["uplink_seconds"]),
        ]
        for domain in used
    ]
    return table(heads, rows)


def _cuts_text(answer: Placement) -> str:
    rows = []
    for depth, crossing in enumerate(answer.cuts):
        bound = _bound(answer, depth)
        proved = ["", ""] if bound is None else [bytes_text(bound), gap_text(_gap(crossing, bound))]
        sent = bytes_text(crossing.bytes_per_step)
        rows.append([crossing.tier, sent, *proved, _by_axis(crossing)])
    heads = ["crosses", "per step", "lower bound, all layouts", "", "by axis"]
    return table(heads, rows)


def _by_axis(cut: TierCut) -> str:
    return ", ".join(f"{axis} {bytes_text(b)}" for axis, b in cut.by_axis)


def _insufficient_text(question: Question, answer: Insufficient) -> str:
    head = f"insufficient: {question.name}: {answer.reason}"
    if not answer.free_by_domain or not question.fabric.tiers:
        return head
    rows = [[name, f"{free:,}"] for name, free in answer.free_by_domain]
    return f"{head}\n\n{table([question.fabric.tiers[0].name, 'free'], rows)}"


def _free_domains(question: Question, answer: Placement) -> tuple[FreeTier, ...]:
    hosts = np.flatnonzero(to_mask(question.free, question.fabric.host_count)).astype(np.int64)
    return count_free_domains(question.fabric, hosts, answer.hosts + answer.spares)


def _free_domains_text(question: Question, answer: Placement) -> str:
    """Write one line about the free hosts of domains; "" on a fabric without tiers."""
    if not (tiers := _free_domains(question, answer)):
        return ""
    whole = ", ".join(counted(tier.whole, f"whole {tier.tier}") for tier in tiers)
    largest = counted(tiers[0].largest, "host")
    return f"left free: {whole}; at most {largest} in one {tiers[0].tier}"


def _old_cut(question: Question, hint: Hint) -> int | None:
    """Return the bytes that the old placement would cut; None when not all of its hosts are
    free."""
    if _count_unavailable(question, hint):
        return None
    cuts = cut(question.fabric, question.request, hint.hosts)
    return cuts[0].bytes_per_step if cuts else 0


def _count_unavailable(question: Question, hint: Hint) -> int:
    return sum(host < 0 or not has(question.free, host) for host in hint.hosts)


def _near_mapping(question: Question, answer: Placement) -> dict[str, Any]:
    """Return what moves from the old placement; empty where there was none."""
    if (hint := question.near) is None or answer.moved is None:
        return {}
    near = {
        "slack": hint.slack,
        "lost_hosts": _count_unavailable(question, hint),
        "bytes_per_step": _old_cut(question, hint),
    }
    return {"moved": answer.moved, "near": near}


def _near_text(question: Question, answer: Placement) -> str:
    """Write one line on what moves, and what the old placement would cut if its hosts were free."""
    if (hint := question.near) is None or answer.moved is None:
        return ""
    moved = f"moved {answer.moved:,} of {counted(len(answer.hosts), 'block')}"
    if lost := _count_unavailable(question, hint):
        return f"{moved}; {counted(lost, 'old host')} {'is' if lost == 1 else 'are'} not free"
    return f"{moved}; in its old place it would cut {bytes_text(_old_cut(question, hint) or 0)}"
