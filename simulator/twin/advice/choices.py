"""Advice from a study: which of several choices to make.

Each choice is a scenario of one study, on the same seeds. A choice costs something and buys less of
something else: the front is of the choices that no other beats in both. Choices stand from the
cheapest on, and the advice is the first that no other surely beats, seed by seed, in effective
GPU-hours, or in the cost of one where there are prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from muster.structs import replace, struct
from simulator.report.text import columns, duration
from simulator.twin.answer import Values, cell, count_text, header, money, notes, time_text
from simulator.twin.study import SeedMean


@struct(frozen=True, slots=True)
class Choice:
    """`value`: what programs read; `words`: what people do; `changes`: what makes it of the
    cluster."""

    value: int | str
    words: str
    changes: tuple[str, ...]


@struct(frozen=True, slots=True)
class Figure:
    """A figure of a run. `key`: under which programs find it; `words`: for a head of a table;
    `axis`: for an axis."""

    key: str
    words: str
    axis: str
    text: Callable[[float], str] = count_text


LOST = Figure("lost_gpu_h", "GPU-h lost", "GPU-hours that gangs lose")
IDLE = Figure("idle_hosts", "hosts idle", "hosts that stand idle as spares, mean")
WAIT = Figure("wait_mean_s", "mean wait", "mean wait, s", time_text)


@struct(frozen=True, slots=True)
class TwinDecision:
    """`key`: of a choice in JSON; `what`: what is chosen. `cost`: what a choice costs; `gain`: what
    it buys less of. `advice`: the sentence, for the choice. `all_in_order`: whether all are to be
    made, one after the other."""

    key: str
    what: str
    choices: tuple[Choice, ...]
    cost: Figure
    gain: Figure
    advice: Callable[[Choice], str]
    notes: tuple[str, ...] = ()
    all_in_order: bool = False

    @property
    def scenarios(self) -> list[list[str]]:
        """The cluster as it is, and each choice."""
        return [[], *(list(choice.changes) for choice in self.choices)]


def spares(most: int) -> TwinDecision:
    """From 0 to so many spares a zone."""

    def advice(choice: Choice) -> str:
        if not choice.value:
            return "Hold no spares"
        return f"Hold {choice.value} spare{'' if choice.value == 1 else 's'} a zone"

    choices = (Choice(n, str(n), (f"spares {n} a zone",)) for n in range(most + 1))
    return TwinDecision(
        "spares",
        "spares a zone",
        tuple(choices),
        IDLE,
        LOST,
        advice,
        ("lost: GPU-hours that gangs held for no work: restarts, work done again, standing still",),
    )


def maintenance(domains: Sequence[str], start: str, length: str) -> TwinDecision:
    """Each domain drained at that time for so long."""
    choices = tuple(
        Choice(name, name, (f"drain {name} on {start} for {length}",)) for name in domains
    )
    return TwinDecision(
        "drain",
        f"domain that is drained first, for {length}",
        choices,
        WAIT,
        LOST,
        lambda choice: f"Take {choice.words} out first",
        ("each domain is tried by itself, on the cluster as it is then",),
        all_in_order=True,
    )


def with_evacuation(decision: TwinDecision, bounds: Mapping[str, tuple[int, int]]) -> TwinDecision:
    """With what a max-flow says of each domain: hosts of gangs, and how many find a place."""
    said = (
        f"{domain}: were it now, at most {most:,} of {hosts:,} hosts of its gangs find free hosts"
        " elsewhere (max-flow)"
        for domain, (hosts, most) in bounds.items()
    )
    return replace(decision, notes=(*decision.notes, *said))


def advised(decision: TwinDecision, study: Values) -> dict[str, Any]:
    """Return the advice that a study of the decision's scenarios gives."""
    now, *found = (
        _point(decision, scenario, study) | ({decision.key: choice.value} if choice else {})
        for scenario, choice in zip(study["scenarios"], (None, *decision.choices), strict=True)
    )
    for point in found:
        point["is_on_front"] = not any(_beats(decision, other, point) for other in found)
    runs = [each["runs"] for each in study["scenarios"][1:]]
    has_prices = bool(study["currency"])
    order = sorted(range(len(runs)), key=lambda at: -_mean_worth(runs[at], has_prices))
    best = order[0] if decision.all_in_order else _first_unbeaten(runs, has_prices)
    return {
        "question": decision.what,
        "choice": decision.key,
        "advice": decision.choices[best].value,
        **(
            {"order": [decision.choices[at].value for at in order]} if decision.all_in_order else {}
        ),
        "sentence": _sentence(decision, study, best, order, found),
        "now": now,
        "points": found,
        "notes": list(decision.notes),
        "figures": [
            [figure.key, figure.words, figure.axis] for figure in (decision.cost, decision.gain)
        ],
        "study": study,
    }


def _point(decision: TwinDecision, scenario: Values, study: Values) -> dict[str, Any]:
    """A choice in figures, or the cluster as it is."""
    found = {key: scenario["figures"].get(key) for key in ("lost_gpu_h", "effective_gpu_h")}
    found["wait_mean_s"] = scenario["figures"]["wait_mean_s"]
    if decision.cost is IDLE:
        hosts, runs = study["fabric"]["hosts"], scenario["runs"]
        idle = [run["spare_gpu_h"] / run["all_gpu_h"] * hosts for run in runs]
        found[IDLE.key] = SeedMean.of(idle).data()
    if study["currency"]:
        found["per_effective_gpu_h"] = scenario["money"]["per_effective_gpu_h"]
    return found


def _beats(decision: TwinDecision, one: Values, other: Values) -> bool:
    """Whether it is no worse in both, and better in one."""
    keys = (decision.cost.key, decision.gain.key)
    mine, its = ([point[key]["mean"] for key in keys] for point in (one, other))
    return mine != its and all(a <= b for a, b in zip(mine, its, strict=True))


def _worth(run: Values, has_prices: bool) -> float:
    if has_prices:
        return -float(run["money"]["per_effective_gpu_h"])
    return float(run["effective_gpu_h"])


def _mean_worth(runs: Sequence[Values], has_prices: bool) -> float:
    return sum(_worth(run, has_prices) for run in runs) / len(runs)


def _first_unbeaten(runs: Sequence[Sequence[Values]], has_prices: bool) -> int:
    """The first choice that none surely beats; without intervals, that none beats."""

    def is_beaten(here: Sequence[Values], there: Sequence[Values]) -> bool:
        pairs = zip(here, there, strict=True)
        more = SeedMean.of([_worth(b, has_prices) - _worth(a, has_prices) for a, b in pairs])
        return more.mean > 0 and (more.half is None or more.is_sure)

    return next(at for at, here in enumerate(runs) if not any(is_beaten(here, o) for o in runs))


def _sentence(
    decision: TwinDecision,
    study: Values,
    best: int,
    order: Sequence[int],
    points: Sequence[Values],
) -> str:
    ahead, choice = duration(study["horizon_s"]), decision.choices[best]
    measure = "does more effective GPU-hours"
    if study["currency"]:
        measure = "makes an effective GPU-hour cheaper"
    surely = "surely " if len(study["seeds"]) > 1 else "under this one seed "
    cost, gain = (
        f"{figure.words} {figure.text(points[best][figure.key]['mean'])}"
        for figure in (decision.cost, decision.gain)
    )
    then = f"Then in {ahead}: {cost}, {gain}."
    if decision.all_in_order:
        rest = ", ".join(decision.choices[at].words for at in order[1:])
        by = "cost of an effective GPU-hour" if study["currency"] else "effective GPU-hours"
        return f"{decision.advice(choice)}{f', then {rest}' if rest else ''}, by {by}. {then}"
    text = f"{decision.advice(choice)}: no other choice of {len(points)} {surely}{measure}"
    if best:
        text += ", which is so of none before it in the table"
    return f"{text}. {then}"


def rows(decision: TwinDecision, advice: Values) -> Iterator[list[str]]:
    """The table, its head first."""
    study = advice["study"]
    shown = {figure.key: figure for figure in (decision.cost, decision.gain)}
    work = Figure("effective_gpu_h", "effective GPU-h", "")
    shown |= {figure.key: figure for figure in (work, WAIT) if figure.key not in shown}
    cost = [f"{study['currency']} for a GPU-hour"] if study["currency"] else []
    yield [decision.what, *(figure.words for figure in shown.values()), *cost, ""]
    choices = [None, *decision.choices]
    for choice, point in zip(choices, (advice["now"], *advice["points"]), strict=True):
        marks = ["front"] if point.get("is_on_front") else []
        marks += ["advised"] if choice and choice.value == advice["advice"] else []
        yield [
            choice.words if choice else "as it is",
            *(cell(point[key], figure.text) for key, figure in shown.items()),
            *([cell(point["per_effective_gpu_h"], money)] if cost else []),
            ", ".join(marks),
        ]


def text(decision: TwinDecision, advice: Values) -> str:
    """For a terminal."""
    lines = [advice["sentence"], "", header(advice["study"]), ""]
    lines += [columns(list(rows(decision, advice))), ""]
    return "\n".join([*lines, *(f"note: {each}" for each in advice_notes(decision, advice))])


def advice_notes(decision: TwinDecision, advice: Values) -> list[str]:
    """Return the notes on what the numbers rest on."""
    front = (
        f"front: no other choice has both less of {decision.cost.words} and {decision.gain.words}"
    )
    return [*decision.notes, front, *notes(advice["study"])]
