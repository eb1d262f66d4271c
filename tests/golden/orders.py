"""Words of a golden script as commands of the scheduler."""

import re
from collections.abc import Callable
from dataclasses import replace

from placement.fabric.constraints import Constraints
from placement.workload.request import AUTO
from scheduler.core import JobState
from scheduler.core.model.commands import Command, MoveLink, ReportLink
from scheduler.core.model.lifecycle import LinkMove
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.tenants import GuaranteedCell
from scheduler.files.links.linksfile import parse_share
from tests.build import cancel, cordon, drain, end, exactly, fail, repair, submit, uncordon
from tests.windows import remove_window, set_window


def cell(text: str) -> GuaranteedCell:
    """1xrack: one whole rack; 1xzone:3: three hosts of one zone."""
    match = re.fullmatch(r"(\d+)x([a-z]+)(?::(\d+))?", text)
    assert match, f"{text!r} is no cell"
    return GuaranteedCell(match[2], int(match[1]), int(match[3] or 0))


def seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smh])", text)
    assert match, f"{text!r} is no duration"
    return int(match[1]) * {"s": 1, "m": 60, "h": 3_600}[match[2]]


def _submit(
    name: str,
    hosts: str = "1",
    pp: str = "1",
    priority: str = "0",
    limit: str = "",
    spares: str = "0",
    request_id: str = "",
    tenant: str = "",
    **rest: str,
) -> Command:
    return submit(
        name,
        int(hosts),
        pp=int(pp),
        priority=int(priority),
        limit_s=seconds(limit) if limit else None,
        spares=AUTO if spares == "auto" else exactly(int(spares)),
        request_id=request_id,
        tenant=tenant,
        priority_class=rest.get("class", ""),
        where=_where(rest),
        min_dp=int(rest.get("min_dp", "0")),
        gpus=int(rest.get("tp", "8")),
        affinity=_affinity_of(rest),
    )


def _where(options: dict[str, str]) -> Constraints:
    labels = (("gpu", options["gpu"]),) if "gpu" in options else ()
    return Constraints(int(options.get("max_zones", "0")), options.get("same", ""), labels)


def _affinity_of(options: dict[str, str]) -> Affinity:
    tier, _, names = options.get("avoid", "").partition(":")
    avoid = ((tier, tuple(names.split(","))),) if names else ()
    return Affinity(options.get("exclusive", ""), avoid, options.get("near", ""))


def _end(name: str, outcome: str = "completed", attempt: str = "0") -> Command:
    return end(name, JobState(outcome), int(attempt))


def _window(name: str, is_change: bool = False, **keys: str) -> Command:
    among = tuple(keys.get("on", "").split(",")) if "on" in keys else ()
    command = set_window(
        name,
        *among,
        is_change=is_change,
        start_s=seconds(keys["from"]),
        end_s=seconds(keys["to"]),
        count=int(keys.get("count", "0")),
        tenant=keys.get("tenant", ""),
        jobs=tuple(keys["jobs"].split(",")) if "jobs" in keys else (),
        leave=keys.get("leave", "wait"),
        reason=keys.get("why", ""),
    )
    if "links" not in keys:
        return command
    share = parse_share(keys.get("share", "0"), "share")
    window = replace(command.window, links=tuple(keys["links"].split(",")), share=share)
    return replace(command, window=window)


def _link(name: str, share: str) -> Command:
    return ReportLink(name, parse_share(share, "share"))


def _of_link(verb: str) -> Callable[..., Command]:
    return lambda name: MoveLink(name, LinkMove(verb))


def _change(name: str, **keys: str) -> Command:
    return _window(name, is_change=True, **keys)


COMMANDS: dict[str, Callable[..., Command]] = {
    "submit": _submit,
    "cancel": cancel,
    "end": _end,
    "fail": fail,
    "report": fail,
    "repair": repair,
    "cordon": cordon,
    "uncordon": uncordon,
    "drain": drain,
    "link": _link,
    **{f"{verb}-link": _of_link(verb) for verb in ("cordon", "drain", "uncordon")},
    "maintain": _window,
    "hold": _window,
    "change": _change,
    "remove": remove_window,
}
