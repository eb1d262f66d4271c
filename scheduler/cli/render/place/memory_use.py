"""What a GPU of a placed job needs, and whether those of its hosts have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.structs import struct
from placement.fabric.tree import with_goodput
from placement.objective.axis_loads import NIC
from placement.objective.step_time import AS_FITTED, step_time
from placement.workload.memory import GIB, USABLE_SHARE, fits, memory
from scheduler.cli.render.text import bytes_text, counted, percent_text, seconds_text
from scheduler.core.policies.job_terms import Holders
from scheduler.core.policies.storage_use import sizes_of
from scheduler.core.rules.peer_copies import (
    choose_holders,
    close_copies,
    fatal_domains,
    refuse_without_peers,
    renewal_loads,
    survival,
)

if TYPE_CHECKING:
    from placement.fabric.gpus import Gpu
    from placement.fabric.tree import Fabric
    from placement.objective.step_time import Assumptions
    from placement.workload.memory import MemoryUse
    from placement.workload.request import Placement, Request
    from scheduler.cli.render.place.question import Question


def _on_smallest(
    fabric: Fabric, request: Request, answer: Placement
) -> tuple[MemoryUse, Gpu] | None:
    use, kinds = memory(request), fabric.by_host.kinds_of(answer.hosts)
    return (use, min(kinds, key=lambda gpu: gpu.memory_gb)) if use and kinds else None


def to_text(fabric: Fabric, request: Request, answer: Placement) -> str:
    """Write a line on the memory of a GPU; "" without a model."""
    if (result := _on_smallest(fabric, request, answer)) is None:
        return ""
    use, gpu = result
    size = f"{gpu.memory_gb:g} GiB of {gpu.name}"
    if fits(use, gpu.memory_gb):
        verdict = f"fits the {size}"
    else:
        verdict = f"DOES NOT FIT: at most {100 * USABLE_SHARE:g} % of the {size}"
    return f"memory on {fabric.name}: {use}; {verdict}"


def to_mapping(fabric: Fabric, request: Request, answer: Placement) -> dict[str, Any] | None:
    """Return the memory of a GPU in GiB; None without a model."""
    if (result := _on_smallest(fabric, request, answer)) is None:
        return None
    use, gpu = result
    parts = ("parameters", "gradients", "optimizer", "activations", "working", "fragmentation")
    return {
        "gib": round(use.total / GIB, 3),
        "stage": use.stage,
        "parts_gib": {part: round(getattr(use, part) / GIB, 3) for part in (*parts, "context")},
        "gpu": gpu.name,
        "gpu_gib": gpu.memory_gb,
        "fits": fits(use, gpu.memory_gb),
    }


SHOWN_FAILED = (2, 3, 4, 8)


def holders(question: Question, answer: Placement) -> Holders:
    """Return the hosts that hold copies of each host's state; none for a job without copies.
    Raises: BadInput when the gang has too few replicas."""
    if not question.peers:
        return ()
    refuse_without_peers(question.request, question.fabric.gpus_per_host, question.peers)
    return choose_holders(question.fabric, question.request, answer.hosts, question.peers)


def copies_mapping(question: Question, answer: Placement) -> dict[str, Any]:
    """Return the holders of copies; nothing for a job without copies."""
    if not (held := holders(question, answer)):
        return {}
    names = question.fabric.names(answer.hosts)
    size = sizes_of(question.fabric, question.request)
    body = {
        "peers": question.peers,
        "survival": [
            {"failed": k, "probability": share.probability, "exact": share.is_exact}
            for k in SHOWN_FAILED
            if k <= len(held) and (share := survival(held, k))
        ],
        "domains": [
            {"tier": tier, "used": used, "fatal": fatal}
            for tier, used, fatal in fatal_domains(question.fabric, answer.hosts, held)
        ],
        "close": [names[b] for b in close_copies(question.fabric, answer.hosts, held)],
        "bytes_per_host": size.of_host * question.peers if size else None,
        "load_seconds": size.from_peer_s if size else None,
        **renewal_mapping(renewal_of(question, answer, held)),
        "copies": {names[b]: [names[h] for h in some] for b, some in enumerate(held)},
    }
    return {"checkpoint": body}


def copies_text(question: Question, answer: Placement) -> str:
    if not (body := copies_mapping(question, answer).get("checkpoint")):
        return ""
    lines = [f"copies: each host's state in the memory of {counted(question.peers, 'other host')}"]
    if body["bytes_per_host"] is not None:
        kept, load_s = bytes_text(body["bytes_per_host"]), seconds_text(body["load_seconds"])
        lines[0] += f", {kept} a host; a swap loads it in {load_s}"
    if renewal := renewal_of(question, answer, holders(question, answer)):
        lines.append(renewal_text(renewal))
    kept_by = ", ".join(
        f"{each['failed']} hosts {'' if each['exact'] else 'at least '}"
        f"{100 * each['probability']:.4g} %"
        for each in body["survival"]
    )
    lines += [f"nothing is lost when any fail together: {kept_by}"] if kept_by else []
    for each in body["domains"]:
        tier, fatal = each["tier"], each["fatal"]
        of = f"do not survive {fatal:,} of {each['used']:,} {tier}s"
        lines.append(f"the copies {of if fatal else f'survive the loss of any {tier}'}")
    if near := body["close"]:
        lines.append(f"note: {counted(len(near), 'host')} share a rack or feed with their copy")
    return "\n".join(lines)


@struct(frozen=True, slots=True)
class Renewal:
    """Traffic of copies in memory, which are renewed every `interval_s`. `loads`: as
    `renewal_loads`. `delay_s`: by how much a step is longer for it on average, at
    most."""

    interval_s: int
    loads: tuple[tuple[str, int, float], ...]
    delay_s: float


def renewal_of(
    question: Question, answer: Placement, held: Holders, assumed: Assumptions = AS_FITTED
) -> Renewal | None:
    """Return what renewals of the copies that `held` tells of take of links and steps; None without
    copies or without a model. Messages of a step meet a renewal as they meet a neighbour's, and all
    links of a tier are taken to be as full as the fullest."""
    fabric, request, hosts = question.fabric, question.request, answer.hosts
    size = sizes_of(fabric, request)
    if not held or size is None:
        return None
    loads = renewal_loads(fabric, hosts, held, size)
    left = {
        NIC if tier == "host" else tier: 1 / (1 + seconds / question.peer_interval_s)
        for tier, _, seconds in loads
    }
    alone_s, beside_s = (
        step_time(each, request, hosts, assumed).seconds
        for each in (fabric, with_goodput(fabric, left))
    )
    return Renewal(question.peer_interval_s, loads, max(beside_s - alone_s, 0.0))


def renewal_mapping(renewal: Renewal | None) -> dict[str, Any]:
    """Return what renewals take, in bytes, seconds and shares of the time."""
    if renewal is None:
        return {"renewal": [], "renewal_delay_seconds": None}
    return {
        "renewal": [
            {"tier": tier, "bytes": sent, "seconds": s, "busy_share": s / renewal.interval_s}
            for tier, sent, s in renewal.loads
        ],
        "renewal_delay_seconds": renewal.delay_s,
    }


def renewal_text(renewal: Renewal) -> str:
    """Say what renewals send over links, of those that they cross, and what steps wait for them."""
    shares = [
        f"{percent_text(seconds / renewal.interval_s)} of the fullest"
        f" {'NICs of a host' if tier == 'host' else f'uplink of a {tier}'}"
        f" ({bytes_text(sent)} in all)"
        for tier, sent, seconds in renewal.loads
        if sent
    ]
    text = f"renewed every {seconds_text(renewal.interval_s)}: {', '.join(reversed(shares))}"
    if any(seconds > renewal.interval_s for _, _, seconds in renewal.loads):
        text += "; A RENEWAL TAKES LONGER THAN THAT"
    if not renewal.delay_s:
        return f"{text}; hidden behind compute: no step waits for it"
    return f"{text}; a step waits {seconds_text(renewal.delay_s)} for it on average, at most"
