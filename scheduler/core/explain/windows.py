"""What windows mean to one waiting job, in words and in seconds."""

from __future__ import annotations

from collections.abc import Collection

from placement.fabric.hostset import HostSet
from scheduler.core.explain.reason import Obstacle
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.state import State
from scheduler.core.model.window import Window, WindowKind
from scheduler.core.names import stated_tenant
from scheduler.core.rules.calendar import Calendar
from scheduler.core.wording import duration


def closed_text(
    state: State, job: Job, windows: tuple[Obstacle, ...], now_ns: int, lasts_ns: int
) -> str:
    """`4 in window w (firmware), which opens in 1 h 00 min, before ...`."""
    suspect = (state.free & state.index.probation).bit_count()
    if not windows:
        return f"{suspect:,} of them suspect and for preemptible jobs only"
    window = state.windows[windows[0].name].window
    known = state.tenants.path(job.tenant)
    more = f" and {len(windows) - 1:,} more" if len(windows) > 1 else ""
    subject = f"{windows[0].hosts:,} in {window.titled(known)}{more}, which"
    wait_s = (window.start_ns - now_ns) // SECOND_NS
    if wait_s > 0:
        lasts = duration(lasts_ns // SECOND_NS)
        origin = "states" if job.spec.time_limit_s is not None else "is assumed to need"
        return (
            f"{subject} opens in {duration(wait_s)}, before the {lasts} are over that it {origin}"
        )
    if window.kind is WindowKind.MAINTENANCE:
        return f"{subject} is open"
    return f"{subject} holds them for {_beneficiaries_text(window, known)}"


def _beneficiaries_text(window: Window, known: Collection[str]) -> str:
    """`tenant vision`, `jobs demo-*, eval`; what is of other tenants than these is not named."""
    named = [name for name in window.jobs if not (of := stated_tenant(name)) or of in known]
    jobs = f"job{'' if len(named) == 1 else 's'} {', '.join(named)}"
    whom = [f"tenant {window.tenant}"] * (window.tenant in known) + [jobs] * bool(named)
    return " and ".join(whom) or "others"


def fits_s(calendar: Calendar, job: Job, reach: HostSet, now_ns: int, lasts_ns: int) -> int | None:
    """The longest time limit with which windows leave `job` enough of `reach` now; None when
    no shorter one than `lasts_ns` does."""
    starts = {b.window.start_ns for b in calendar.closing(job, now_ns, now_ns + lasts_ns)}
    for start_ns in sorted(starts, reverse=True):
        open_to = reach & ~calendar.closed(job, now_ns, start_ns)
        if start_ns - now_ns >= SECOND_NS and open_to.bit_count() >= job.needed:
            return (start_ns - now_ns) // SECOND_NS
    return None
