"""Advice from a study: how many spares a zone.

Each number is a scenario of one study, on the same seeds. What spares buy is that gangs lose less
after failures; what they cost is hosts that stand idle: the front is of the numbers that no other
beats in both. The advice is the smallest number that no other surely beats, seed by seed, in
effective GPU-hours, or in the cost of one where there are prices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simulator.report.text import duration
from simulator.twin.answer import Values, cell, columns, count_text, header, money, notes, time_text
from simulator.twin.study import SeedMean


def spares_scenarios(most: int) -> list[list[str]]:
    """The cluster as it is, and each number of spares from 0 on."""
    return [[], *([f"spares {count} a zone"] for count in range(most + 1))]


def spares_advice(study: Values) -> dict[str, Any]:
    """What a study of `spares_scenarios` says."""
    points = [_point(scenario, study, at - 1) for at, scenario in enumerate(study["scenarios"])]
    for point in points[1:]:
        point["is_on_front"] = not any(_beats(other, point) for other in points[1:])
    numbers = study["scenarios"][1:]
    best = _advised([each["runs"] for each in numbers], has_prices=bool(study["currency"]))
    return {
        "question": "spares a zone",
        "advice": best,
        "sentence": _sentence(study, best, points[1:]),
        "now": points[0],
        "points": points[1:],
        "study": study,
    }


def _point(scenario: Values, study: Values, spares: int) -> dict[str, Any]:
    runs, fabric = scenario["runs"], study["fabric"]
    found: dict[str, Any] = {} if spares < 0 else {"spares": spares}
    idle = [run["spare_gpu_h"] / run["all_gpu_h"] * fabric["hosts"] for run in runs]
    found["idle_hosts"] = SeedMean.of(idle).data()
    for key in ("lost_gpu_h", "effective_gpu_h", "wait_mean_s"):
        found[key] = scenario["figures"][key]
    if study["currency"]:
        found["per_effective_gpu_h"] = scenario["money"]["per_effective_gpu_h"]
    return found


def _beats(one: Values, other: Values) -> bool:
    """Whether it is no worse in both, and better in one."""
    mine, its = (
        (point["idle_hosts"]["mean"], point["lost_gpu_h"]["mean"]) for point in (one, other)
    )
    return mine != its and all(a <= b for a, b in zip(mine, its, strict=True))


def _advised(runs: Sequence[Sequence[Values]], *, has_prices: bool) -> int:
    """The smallest number that none surely beats; without intervals, the best."""

    def worth(run: Values) -> float:
        if has_prices:
            return -float(run["money"]["per_effective_gpu_h"])
        return float(run["effective_gpu_h"])

    def is_beaten(here: Sequence[Values], there: Sequence[Values]) -> bool:
        more = SeedMean.of([worth(b) - worth(a) for a, b in zip(here, there, strict=True)])
        return more.mean > 0 and (more.half is None or more.is_sure)

    return next(at for at, here in enumerate(runs) if not any(is_beaten(here, o) for o in runs))


def _sentence(study: Values, best: int, points: Sequence[Values]) -> str:
    ahead, point = duration(study["horizon_s"]), points[best]
    spares = f"{best} spare{'' if best == 1 else 's'} a zone"
    measure = "does more effective GPU-hours"
    if study["currency"]:
        measure = "makes an effective GPU-hour cheaper"
    surely = "surely " if len(study["seeds"]) > 1 else "under this one seed "
    text = f"Hold no spares: no number up to {len(points) - 1} {surely}{measure}"
    if best:
        text = (
            f"Hold {spares}: no other number up to {len(points) - 1} {surely}{measure}, which is"
            " so of no smaller one"
        )
    idle, lost = point["idle_hosts"]["mean"], point["lost_gpu_h"]["mean"]
    return (
        f"{text}. Then {count_text(idle)} hosts stand idle, and gangs lose"
        f" {count_text(lost)} GPU-hours in {ahead}."
    )


def rows(advice: Values) -> Iterator[list[str]]:
    """The table, its head first."""
    study = advice["study"]
    cost = [f"{study['currency']} for a GPU-hour"] if study["currency"] else []
    yield ["spares a zone", "hosts idle", "GPU-h lost", "effective GPU-h", "mean wait", *cost, ""]
    for point in (advice["now"], *advice["points"]):
        words = "as it is" if "spares" not in point else str(point["spares"])
        marks = ["front"] if point.get("is_on_front") else []
        marks += ["advised"] if point.get("spares") == advice["advice"] else []
        yield [
            words,
            cell(point["idle_hosts"], count_text),
            cell(point["lost_gpu_h"], count_text),
            cell(point["effective_gpu_h"], count_text),
            cell(point["wait_mean_s"], time_text),
            *([cell(point["per_effective_gpu_h"], money)] if cost else []),
            ", ".join(marks),
        ]


def text(advice: Values) -> str:
    """For a terminal."""
    study = advice["study"]
    lines = [advice["sentence"], "", header(study), "", *columns(list(rows(advice))), ""]
    return "\n".join([*lines, *(f"note: {each}" for each in advice_notes(advice))])


def advice_notes(advice: Values) -> list[str]:
    """What the numbers rest on."""
    return [
        "lost: GPU-hours that gangs held for no work: restarts, work done again, standing still",
        "front: no other number has both fewer hosts idle and fewer GPU-hours lost",
        *notes(advice["study"]),
    ]
