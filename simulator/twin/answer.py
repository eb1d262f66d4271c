"""The answer of a study for people: a sentence, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simulator.report.text import duration

Values = Mapping[str, Any]


def _count(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:,.1f}"


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"


def _time(value: float) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}{duration(abs(value))}"


def money(value: float) -> str:
    """An amount of the prices file's currency, in figures that tell."""
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"


# Key, words, how it is written.
ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("effective_gpu_h", "effective GPU-hours", _count),
    ("goodput", "goodput: effective of held", _share),
    ("effective_share", "effective of all", _share),
    ("wait_mean_s", "wait, mean", _time),
    ("wait_p95_s", "wait, p95", _time),
    ("still_waiting", "jobs that wait at the end", _count),
    ("spare_gpu_h", "GPU-hours of spares", _count),
    ("out_gpu_h", "GPU-hours out of service", _count),
    ("restarts", "restarts", _count),
    ("preemptions", "preemptions", _count),
    ("host_failures", "hosts that failed", _count),
)
MONEY_ROWS = (
    *(("gpus", "GPUs"), ("hosts", "hosts"), ("uplinks", "uplinks"), ("spares", "spares")),
    *(("repairs", "repairs"), ("repair_contract", "repair contract"), ("total", "total")),
    ("per_effective_gpu_h", "for an effective GPU-hour"),
)


def sentence(answer: Values) -> str:
    """What the last scenario is worth beside the first, in a sentence or two."""
    base, other = answer["scenarios"][0], answer["scenarios"][-1]
    ahead, seeds = duration(answer["horizon_s"]), len(answer["seeds"])
    figures = base["figures"]
    if other is base:
        text = (
            f"As it is, the cluster does {_count(figures['effective_gpu_h']['mean'])} effective"
            f" GPU-hours in {ahead}, {_share(figures['effective_share']['mean'])} of all,"
            f" and a job waits {_time(figures['wait_mean_s']['mean'])} on average."
        )
        if answer["currency"]:
            each = base["money"]["per_effective_gpu_h"]["mean"]
            text += f" An effective GPU-hour costs {money(each)} {answer['currency']}."
        return text
    more, was = other["differences"]["effective_gpu_h"], figures["effective_gpu_h"]["mean"]
    words = f"With {other['name']}, the cluster"
    if _is_sure(more):
        percent = f", {abs(100 * more['mean'] / was):.2f} %" if was else ""
        word = "more" if more["mean"] > 0 else "fewer"
        did = f"does {_count(abs(more['mean']))} {word} effective GPU-hours in {ahead}{percent}"
    elif not more["mean"] and not _half(more):
        did = f"does as many effective GPU-hours in {ahead} as without"
    elif more["low"] is None:
        did = (
            f"does {_signed(more['mean'], _count)} effective GPU-hours in {ahead}, under one seed,"
            " which tells no interval"
        )
    else:
        did = (
            f"does no more and no fewer effective GPU-hours in {ahead} than {seeds} seeds can tell"
            f" ({_signed(more['mean'], _count)}, ± {_count(_half(more))})"
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
    """`12.3 ± 0.4`."""
    text = _signed(estimate["mean"], write) if is_change else write(estimate["mean"])
    half = _half(estimate)
    return text if not half else f"{text} ± {write(half)}"


def tables(answer: Values) -> Iterator[tuple[str, list[list[str]]]]:
    """(title, rows): figures by row, scenarios by column, the first row their names."""
    scenarios = answer["scenarios"]
    yield "", _table(scenarios, "figures", "differences", ROWS)
    if answer["currency"]:
        rows = [(key, words, money) for key, words in MONEY_ROWS]
        title = f"Money, {answer['currency']} in {duration(answer['horizon_s'])}"
        yield title, _table(scenarios, "money", "money_differences", rows)
    kinds = {(w["tenant"], w["size"]): None for each in scenarios for w in each["waits"]}
    if kinds:
        yield "Mean waits by tenant and size", _waits(scenarios, list(kinds))


def _table(
    scenarios: Sequence[Values],
    key: str,
    change: str,
    rows: Sequence[tuple[str, str, Callable[[float], str]]],
) -> list[list[str]]:
    head = [""]
    for at, scenario in enumerate(scenarios):
        head += [scenario["name"], *(["difference"] if at else [])]
    found = [head]
    for name, words, write in rows:
        line = [words]
        for at, scenario in enumerate(scenarios):
            line.append(cell(scenario[key][name], write))
            if at:
                line.append(cell(scenario[change][name], write, is_change=True))
        found.append(line)
    return found


def _waits(scenarios: Sequence[Values], kinds: Sequence[tuple[str, str]]) -> list[list[str]]:
    head = ["tenant", "size", "jobs a run"]
    for at, scenario in enumerate(scenarios):
        head += [scenario["name"], *(["difference"] if at else [])]
    found = [head]
    for tenant, size in kinds:
        line = [tenant, size]
        for at, scenario in enumerate(scenarios):
            wait = next(
                (w for w in scenario["waits"] if (w["tenant"], w["size"]) == (tenant, size)), None
            )
            if not at:
                line.append(_count(wait["jobs"]) if wait else "0")
            line.append(cell(wait["wait_mean_s"], _time) if wait else "-")
            if at:
                line.append(cell(wait["difference"], _time, is_change=True) if wait else "-")
        found.append(line)
    return found


def header(answer: Values) -> str:
    """What was asked of which cluster."""
    fabric, seeds = answer["fabric"], len(answer["seeds"])
    return (
        f"{fabric['name']}, {fabric['hosts']:,} hosts, from {answer['source']} at version"
        f" {answer['version']:,}, {answer['time']}; policy {answer['policy']};"
        f" {duration(answer['horizon_s'])} ahead, {seeds} seed{'' if seeds == 1 else 's'}"
    )


def notes(answer: Values) -> list[str]:
    """What the numbers rest on."""
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
    refused = sum(
        sum(run["refused"].values()) for each in answer["scenarios"] for run in each["runs"]
    )
    if refused:
        found.append(f"{refused:,} drawn jobs were refused by the scheduler, in all runs together")
    return found


def text(answer: Values) -> str:
    """For a terminal."""
    lines = [sentence(answer), "", header(answer)]
    for title, rows in tables(answer):
        lines += ["", *([title] if title else []), *_columns(rows)]
    return "\n".join([*lines, "", *(f"note: {each}" for each in notes(answer))])


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (each.rjust(width) for each, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([first, *rest]).rstrip())
    return lines
