"""What happened, as lines of a golden script."""

from placement.workload.request import TierCut
from scheduler.core.model.events import (
    Defragmented,
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    HealthLoaded,
    HostMoved,
    HostSignalled,
    HostsJudged,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobsReserved,
    JobStarted,
    JobSubmitted,
    LinkMoved,
    LinkReported,
    SparesChanged,
    TenantsLoaded,
    WindowClosed,
    WindowOpened,
    WindowRemoved,
    WindowSet,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.wording import share_text


def said(event: Event) -> str:
    """An event as a line of the lab book."""
    match event:
        case JobSubmitted():
            return f"{event.spec.name} submitted"
        case JobStarted():
            spares = f", spares {' '.join(event.spares)}" if event.spares else ""
            hosts = " ".join(event.hosts)
            bytes_cut = f"{cuts(event.cuts)}, bound {event.lower_bound}"
            return f"{event.name} started #{event.attempt} on {hosts}{spares}; {bytes_cut}"
        case GangSwapped():
            swaps = ", ".join(f"block {s.block} {s.left} -> {s.joined}" for s in event.swaps)
            what = f"swapped {swaps}" if swaps else "restarted in place"
            return f"{event.name} {what}, #{event.attempt}; {cuts(event.cuts)}"
        case Defragmented():
            return f"defragmentation: {event.sentence}"
        case JobPreempted():
            return f"{event.name} {event.reason}"
        case GangResized():
            spares = f", spares {' '.join(event.spares)}" if event.spares else ""
            what = f"resized to dp {event.dp}, #{event.attempt}: {event.reason}"
            return f"{event.name} {what}; on {' '.join(event.hosts)}{spares}; {cuts(event.cuts)}"
        case SparesChanged():
            spares = " ".join(event.spares) or "no spares"
            lent = f", lent {' '.join(event.lent)}" if event.lent else ""
            return f"{event.name} now holds {spares}{lent}: {event.reason}"
        case JobRequeued():
            return f"{event.name} requeued: {event.reason}"
        case JobEnded():
            return f"{event.name} {event.outcome}"
        case HostMoved():
            return f"{event.host} {event.move}{f' ({event.reason})' if event.reason else ''}"
        case HealthLoaded():
            return "health policy loaded"
        case HostsJudged():
            return "hosts judged"
        case HostSignalled():
            return f"{event.host} signalled {event.signal}"
        case LinkReported():
            return f"link {event.link} {share_text(event.share)}"
        case LinkMoved():
            return f"link {event.link} {event.move}"
        case FabricLoaded():
            return "fabric loaded"
        case TenantsLoaded():
            return f"tenants loaded: {', '.join(event.tenants.by_name)}"
        case WindowSet():
            window = event.window
            span = f"{clock(window.start_ns)} to {clock(window.end_ns)}"
            where = " ".join(window.hosts or window.links)
            return f"{window.kind} {window.name} set: {span} on {where}"
        case WindowOpened():
            return f"window {event.name} opened"
        case WindowClosed():
            return f"window {event.name} closed"
        case WindowRemoved():
            return f"window {event.name} removed"
        case JobsReserved():
            return f"reserved {reserved(event.starts)}"


def reserved(starts: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{name} at {clock(start_ns)}" for name, start_ns in starts)


def cuts(tiers: tuple[TierCut, ...]) -> str:
    return "cut " + ", ".join(f"{tier.tier} {tier.bytes_per_step}" for tier in tiers)


def clock(time_ns: int) -> str:
    """Hours and minutes since the start; seconds where there are any."""
    total = time_ns // SECOND_NS
    hours, minutes, rest = total // 3_600, total % 3_600 // 60, total % 60
    return f"{hours:02d}:{minutes:02d}" + (f":{rest:02d}" if rest else "")
