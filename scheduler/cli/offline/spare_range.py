"""`muster place --spares 1%..20%`: what several numbers of spares give, beside the sized one."""

from __future__ import annotations

from typing import Any

import typer

from placement import Sizing
from placement.workload.request import Answer, Placement
from scheduler.cli.render.place.answers import domains, outcome
from scheduler.cli.render.place.question import Question
from scheduler.cli.render.text import bytes_text, columns, percent_text, seconds_text

STEPS = 5
_SHAPE = "must be a range of two shares or of two numbers of hosts, smaller first: 1%..20% or 4..64"


def spare_rules(text: str) -> list[str]:
    """Return `auto` and five rules from one end of the range to the other, each by the same
    factor more, fewer where they are alike. Raises: typer.BadParameter."""
    low, _, high = (part.strip() for part in text.partition(".."))
    sign = "%" if low.endswith("%") and high.endswith("%") else ""
    try:
        ends = [float(part.removesuffix("%")) if sign else int(part) for part in (low, high)]
    except ValueError:
        ends = []
    if len(ends) < 2 or not 0 < ends[0] < ends[1] <= (100 if sign else 2**31 - 1):
        raise typer.BadParameter(f"{_SHAPE}, not {text!r}", param_hint="--spares")
    factor = (ends[1] / ends[0]) ** (1 / (STEPS - 1))
    between = [ends[0] * factor**i for i in range(1, STEPS - 1)]
    texts = [f"{value:.2g}" if sign else f"{round(value)}" for value in between]
    return ["auto", *dict.fromkeys((low, *(f"{text}{sign}" for text in texts), high))]


def to_mapping(rule: str, question: Question, answer: Answer, sizing: Sizing) -> dict[str, Any]:
    """Return one line of the comparison: `short_share` of each zone of the gang is the share of
    the time in which more of its hosts are out than it holds spares."""
    if not isinstance(answer, Placement):
        return {"spares": rule, "outcome": outcome(answer)}
    zones = [
        {
            "name": zone["name"],
            "spares": zone["spares"],
            "target": sizing.size(zone["hosts"]),
            "short_share": sizing.short(zone["hosts"], zone["spares"]),
        }
        for zone in domains(question, answer)
        if zone["hosts"]
    ]
    return {
        "spares": rule,
        "outcome": outcome(answer),
        "spare_hosts": len(answer.spares),
        "zones": zones,
        "cut_bytes_per_step": answer.cut,
        "step_seconds": answer.step.seconds if answer.step else None,
    }


def to_text(lines: list[dict[str, Any]]) -> str:
    """Return a line for each rule; zones as `z0 5/5`: spares held against the sized target."""
    rows = [["spares", "hosts", "short at worst", "cut", "step", "of the gang's zones"]]
    for line in lines:
        if line["outcome"] != "placed":
            rows.append([line["spares"], line["outcome"], "-", "-", "-", "-"])
            continue
        step, zones = line["step_seconds"], line["zones"]
        short = max((zone["short_share"] for zone in zones), default=None)
        rows.append(
            [
                f"{line['spares']} (sized)" if line["spares"] == "auto" else line["spares"],
                f"{line['spare_hosts']:,}",
                "-" if short is None else percent_text(short),
                bytes_text(line["cut_bytes_per_step"]),
                seconds_text(step) if step else "-",
                ", ".join(f"{z['name']} {z['spares']}/{z['target']}" for z in zones) or "-",
            ]
        )
    return columns(rows, right={1, 2, 3, 4})
