"""The answer of a study for people: a sentence, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from muster.structs import struct
from simulator.report.study_table import Measure, count_text, share_text
from simulator.report.text import TableCell, columns, duration

Values = Mapping[str, Any]


def money(value: float) -> str:
    """Write an amount in the prices file's currency, with as many digits as matter."""
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"


ROWS = (
    Measure("effective_gpu_h", "effective GPU-hours", 1, count_text),
    Measure("goodput", "goodput: effective of held", 1, share_text),
    Measure("effective_share", "effective of all", 1, share_text),
    Measure("wait_mean_s", "wait, mean", -1, duration),
    Measure("wait_p95_s", "wait, p95", -1, duration),
    Measure("still_waiting", "jobs that wait at the end", -1, count_text),
    Measure("lost_gpu_h", "GPU-hours that gangs lose", -1, count_text),
    Measure("spare_gpu_h", "GPU-hours of spares", 0, count_text),
    Measure("out_gpu_h", "GPU-hours out of service", 0, count_text),
    Measure("restarts", "restarts", -1, count_text),
    Measure("preemptions", "preemptions", -1, count_text),
    Measure("host_failures", "hosts that failed", 0, count_text),
    Measure("retired_hosts", "hosts left before they failed", 0, count_text),
    Measure("false_swaps", "of them without need", -1, count_text),
)
IF_ANY = ("retired_hosts", "false_swaps")
MONEY_ROWS = (
    ("gpus", "GPUs"),
    ("hosts", "hosts"),
    ("uplinks", "uplinks"),
    ("spares", "spares"),
    ("repairs", "repairs"),
    ("repair_contract", "repair contract"),
    ("total", "total"),
    ("per_effective_gpu_h", "for an effective GPU-hour"),
)


def sentence(answer: Values) -> str:
    """Say in a sentence or two what the best scenario is worth beside the first: by effective
    GPU-hours, or the cost of one where there are prices."""
    base, *changed = answer["scenarios"]
    other = max(changed, key=lambda each: _worth(each, answer), default=base)
    ahead, seeds = duration(answer["horizon_s"]), len(answer["seeds"])
    figures = base["figures"]
    if other is base:
        text = (
            f"As it is, the cluster does {count_text(figures['effective_gpu_h']['mean'])} effective"
            f" GPU-hours in {ahead}, {share_text(figures['effective_share']['mean'])} of all,"
            f" and a job waits {duration(figures['wait_mean_s']['mean'])} on average."
        )
        if answer["currency"]:
            each = base["money"]["per_effective_gpu_h"]["mean"]
            text += f" An effective GPU-hour costs {money(each)} {answer['currency']}."
        return text
    more, was = other["differences"]["effective_gpu_h"], figures["effective_gpu_h"]["mean"]
    words = f"With {other['name']}, the cluster"
    if len(changed) > 1:
        by = "the cost of an effective GPU-hour" if answer["currency"] else "effective GPU-hours"
        words = f"With {other['name']}, the best of {len(changed)} by {by}, the cluster"
    if _is_sure(more):
        percent = f", {abs(100 * more['mean'] / was):.2f} %" if was else ""
        word = "more" if more["mean"] > 0 else "fewer"
        did = f"does {count_text(abs(more['mean']))} {word} effective GPU-hours in {ahead}{percent}"
    elif not more["mean"] and not _half(more):
        did = f"does as many effective GPU-hours in {ahead} as without"
    elif more["low"] is None:
        did = (
            f"does {_signed(more['mean'], count_text)} effective GPU-hours in {ahead}, under one"
            " seed, which tells no interval"
        )
    else:
        did = (
            f"does no more and no fewer effective GPU-hours in {ahead} than {seeds} seeds can tell"
            f" ({_signed(more['mean'], count_text)}, ± {count_text(_half(more))})"
        )
    text = f"{words} {did}; {_wait(other['differences']['wait_mean_s'], seeds)}."
    if answer["currency"]:
        unit = "per_effective_gpu_h"
        cost, change = other["money"][unit]["mean"], other["money_differences"][unit]
        was = base["money"][unit]["mean"]
        text += (
            f" An effective GPU-hour costs {money(cost)} {answer['currency']}, where it is"
            f" {money(was)} now{'' if _is_sure(change) else ': a difference that may be chance'}."
        )
    return text


def _worth(scenario: Values, answer: Values) -> float:
    if answer["currency"]:
        return -float(scenario["money"]["per_effective_gpu_h"]["mean"])
    return float(scenario["figures"]["effective_gpu_h"]["mean"])


def _wait(change: Values, seeds: int) -> str:
    if abs(change["mean"]) < 1 and _half(change) < 1:
        return "jobs wait as long"
    more = "longer" if change["mean"] > 0 else "less"
    text = f"jobs wait {duration(abs(change['mean']))} {more} on average"
    return text if _is_sure(change) or seeds < 2 else f"{text}, which may be chance"


def _half(estimate: Values) -> float:
    return 0.0 if estimate["low"] is None else (estimate["high"] - estimate["low"]) / 2


def _is_sure(estimate: Values) -> bool:
    """Whether the interval leaves out 0."""
    low, high = estimate["low"], estimate["high"]
    return low is not None and (low > 0 or high < 0)


def _signed(value: float, write: Callable[[float], str]) -> str:
    text = write(value)
    return text if text.startswith("-") else f"+{text}"


def cell(estimate: Values, write: Callable[[float], str], *, is_change: bool = False) -> str:
    """Write a mean and half of its interval: `12.3 ± 0.4`."""
    text = _signed(estimate["mean"], write) if is_change else write(estimate["mean"])
    half = _half(estimate)
    return text if not half else f"{text} ± {write(half)}"


@struct(frozen=True, slots=True)
class Section:
    """A table of an answer: figures by row, scenarios by column. `head`: over the names of rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def sections(answer: Values) -> Iterator[Section]:
    """Return the tables of an answer."""
    scenarios = answer["scenarios"]
    rows = [
        row
        for row in ROWS
        if row.key not in IF_ANY or any(each["figures"][row.key]["mean"] for each in scenarios)
    ]
    yield Section("", ("",), tuple(_rows(scenarios, "figures", "differences", rows)))
    if answer["currency"]:
        spent = {key for each in scenarios for key in each["money"] if each["money"][key]["mean"]}
        bill = [Measure(key, words, -1, money) for key, words in MONEY_ROWS if key in spent]
        title = f"Money, {answer['currency']} in {duration(answer['horizon_s'])}"
        yield Section(title, ("",), tuple(_rows(scenarios, "money", "money_differences", bill)))
    kinds = {(w["tenant"], w["size"]): None for each in scenarios for w in each["waits"]}
    if kinds:
        title, head = "Mean waits by tenant and size", ("tenant", "size", "jobs a run")
        yield Section(title, head, tuple(_waits(scenarios, list(kinds))))


def _rows(
    scenarios: Sequence[Values],
    key: str,
    change: str,
    rows: Sequence[Measure],
) -> Iterator[tuple[TableCell, ...]]:
    for row in rows:
        changes = (each[change][row.key] if at else None for at, each in enumerate(scenarios))
        pairs = zip(scenarios, changes, strict=True)
        yield TableCell(row.words), *(_entry(each[key][row.key], more, row) for each, more in pairs)


def _entry(value: Values, change: Values | None, row: Measure) -> TableCell:
    if change is None:
        return TableCell(cell(value, row.text))
    sign = (row.better if change["mean"] > 0 else -row.better) if _is_sure(change) else 0
    kind = {1: "better", -1: "worse"}.get(sign, "")
    return TableCell(cell(value, row.text), cell(change, row.text, is_change=True), kind)


def _waits(
    scenarios: Sequence[Values], kinds: Sequence[tuple[str, str]]
) -> Iterator[tuple[TableCell, ...]]:
    wait = next(row for row in ROWS if row.key == "wait_mean_s")
    for kind in kinds:
        found = [
            next((w for w in each["waits"] if (w["tenant"], w["size"]) == kind), None)
            for each in scenarios
        ]
        jobs = count_text(found[0]["jobs"]) if found[0] else "0"
        yield (
            *map(TableCell, (*kind, jobs)),
            *(
                _entry(w["wait_mean_s"], w["difference"] if at else None, wait)
                if w
                else TableCell("-", "-" if at else "")
                for at, w in enumerate(found)
            ),
        )


def header(answer: Values) -> str:
    """Say what was asked of which cluster."""
    fabric, seeds = answer["fabric"], len(answer["seeds"])
    return (
        f"{fabric['name']}, {fabric['hosts']:,} hosts, from {answer['source']} at version"
        f" {answer['version']:,}, {answer['time']}; policy {answer['policy']};"
        f" {duration(answer['horizon_s'])} ahead, {seeds} seed{'' if seeds == 1 else 's'}"
    )


def notes(answer: Values) -> list[str]:
    """Return the notes on what the numbers rest on."""
    found = [f"fitted from the log: {each}" for each in answer["fitted"]]
    if answer["times"]:
        found.append(f"times: {answer['times']}; effective is what the time model counts as steps")
    else:
        found.append(
            "no time model: a gang is as fast on any hosts, and restarts cost what the tenants file"
            " says"
        )
    if len(answer["seeds"]) > 1:
        found.append("± is half of the 95 % interval of a mean over seeds; differences are by seed")
    refused = {
        each["name"]: sum(sum(run["refused"].values()) for run in each["runs"])
        for each in answer["scenarios"]
    }
    if any(refused.values()):
        parts = [f"{count:,} with {name}" for name, count in refused.items() if count]
        found.append(
            "drawn jobs that the scheduler refused, for they could never run, in all seeds:"
            f" {'; '.join(parts).replace('with as it is', 'as it is')}"
        )
    return found


def text(answer: Values) -> str:
    """Write the answer for a terminal."""
    lines = [sentence(answer), "", header(answer)]
    names = [each["name"] for each in answer["scenarios"]]
    head = [name for at, each in enumerate(names) for name in (each, "difference")[: 1 + (at > 0)]]
    for section in sections(answer):
        rows = [[*section.head, *head]]
        for row in section.rows:
            rows.append([part for each in row for part in (each.text, each.change) if part])
        lines += ["", *([section.title] if section.title else []), columns(rows)]
    return "\n".join([*lines, "", *(f"note: {each}" for each in notes(answer))])
