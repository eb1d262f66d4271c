"""What each technique of the engine buys: gangs placed with all of them, and without one at a time.

A technique is known by the name that it has in a portfolio (placement/search/portfolio.py). Each
placement notes which techniques it asks for, and only these are left out, for nothing would change
without the others.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.placement.instances import instance
from bench.placement.numbers import engine_commit
from bench.placement.own import Invalid
from bench.steps.instances import FABRICS, JOBS, timed
from bench.tables import BEGIN, END, Row, percent, table
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective import check
from placement.objective.fitted_constants import fitted_constants
from placement.placer import place
from placement.workload.request import Limits, Objective, Placement, Request

ABLATION_BEGIN, ABLATION_END = (m.replace("measured", "ablation") for m in (BEGIN, END))
PROVED_STEP = 0.01  # gap of a step within which it counts as proved


class NotedTechniques(frozenset[str]):
    """Names of techniques to leave out, which notes the names that it is asked for."""

    def __init__(self, _: Sequence[str] = ()) -> None:
        self.asked: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)


@dataclass(frozen=True, slots=True)
class AblationGang:
    """A gang to place. `name`: suite, seed and index."""

    name: str
    fabric: Fabric
    free: HostSet
    request: Request


@dataclass(frozen=True, slots=True)
class AblationOutcome:
    """One placement. `values`: what is minimised, in its order: seconds of a step with the
    objective `time`, then bytes by tier. `slack`: the share by which first values may differ and
    count as equal. `bound`: of the first value that is not 0."""

    values: tuple[float, ...]
    slack: float
    bound: float
    is_proved: bool
    cpu_s: float
    techniques: tuple[str, ...]

    @property
    def gap(self) -> float:
        value = next((v for v in self.values if v), 0.0)
        return 1 - self.bound / value if value else 0.0


@dataclass(slots=True)
class Ablation:
    """`outcomes`: by the technique left out, "" for none, and by the name of the gang."""

    seed: int
    commit: str
    outcomes: dict[str, dict[str, AblationOutcome]] = field(default_factory=dict)


def gangs(count: int, seed: int) -> Iterator[AblationGang]:
    """Yield gangs of `make bench-placement` with the objective `cut`, then those of `make
    bench-time` with the objective `time`."""
    for index in range(count):
        inst = instance(index, seed)
        yield AblationGang(f"cut {seed}:{index}", inst.fabric, inst.free, inst.request)
    for index in range(min(count, len(FABRICS) * len(JOBS))):
        job = timed(index, seed)
        by_time = replace(job.request, objective=Objective.TIME)
        yield AblationGang(f"time {seed}:{index}", job.fabric, job.free, by_time)


def placed(gang: AblationGang, without: Sequence[str] = ()) -> AblationOutcome:
    """Raises: Invalid on anything but a placement that the referee accepts."""
    noted = NotedTechniques(without)
    began = time.process_time()
    answer = place(gang.fabric, gang.free, gang.request, Limits(without=noted))
    cpu_s = time.process_time() - began
    if not isinstance(answer, Placement):
        raise Invalid(f"{gang.name} without {without}: {answer}")
    if wrong := check.violations(gang.fabric, gang.free, gang.request, answer):
        raise Invalid(f"{gang.name} without {without}: {'; '.join(wrong)}")
    cuts = tuple(float(tier.bytes_per_step) for tier in answer.cuts)
    values, slack = cuts, 0.0
    if answer.step is not None and gang.request.objective is Objective.TIME:
        values, slack = (answer.step.seconds, *cuts), fitted_constants().resolution
        bound = answer.step.least_seconds
        is_proved = values[0] <= bound * (1 + PROVED_STEP)
    elif any(cuts) and not cuts[0]:
        bound = float(answer.inner.bytes_per_step if answer.inner else 0)
        is_proved = bound >= next(filter(None, cuts))
    else:
        bound, is_proved = float(answer.lower_bound), answer.is_optimal
    return AblationOutcome(values, slack, bound, is_proved, cpu_s, tuple(sorted(noted.asked)))


def measure(count: int, seed: int, names: Sequence[str], path: Path | None = None) -> Ablation:
    """Place all gangs, then those that ask for a technique without it: technique by technique, so
    that no placement finds what the one before has left in caches. `names`: empty for all. `path`:
    takes every number as it comes."""
    ablation = Ablation(seed, engine_commit())
    every = {gang.name: gang for gang in gangs(count, seed)}
    whole = ablation.outcomes[""] = {name: placed(gang) for name, gang in every.items()}
    asked = {technique for outcome in whole.values() for technique in outcome.techniques}
    if unknown := set(names) - asked:
        known = ", ".join(sorted(asked))
        raise SystemExit(f"no gang asks for {', '.join(sorted(unknown))}; they ask for {known}")
    for technique in sorted(names or asked):
        print(f"without {technique}", file=sys.stderr)
        users = [name for name, outcome in whole.items() if technique in outcome.techniques]
        without = {name: placed(every[name], [technique]) for name in users}
        ablation.outcomes[technique] = without
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(ablation), indent=1) + "\n")
    return ablation


def read(path: Path) -> Ablation:
    content = json.loads(path.read_text())
    outcomes = {
        technique: {name: _outcome(row) for name, row in rows.items()}
        for technique, rows in content.pop("outcomes").items()
    }
    return Ablation(**content, outcomes=outcomes)


def _outcome(row: dict[str, Any]) -> AblationOutcome:
    return AblationOutcome(
        **{**row, "values": tuple(row["values"]), "techniques": tuple(row["techniques"])}
    )


def growth(before: AblationOutcome, after: AblationOutcome) -> float:
    """Return by which share the first value that differs has grown."""
    for number, (old, new) in enumerate(zip(before.values, after.values, strict=True)):
        share = new / old - 1 if old else float(new > 0)
        if abs(share) > (0.0 if number else before.slack):
            return share
    return 0.0


def text(ablation: Ablation) -> str:
    """The table: a row for each technique."""
    whole = ablation.outcomes[""]
    proved = sum(outcome.is_proved for outcome in whole.values())
    head = (
        *("left out", "gangs", "proofs", "larger", "by up to", "smaller", "by up to"),
        *("gap grows most to", "processor time"),
    )
    rows = [
        _row(technique, [(whole[name], after) for name, after in outcomes.items()])
        for technique, outcomes in ablation.outcomes.items()
        if technique
    ]
    return (
        f"Engine at commit {ablation.commit}; {len(whole)} gangs of seed {ablation.seed}, of which"
        f" {proved} are proved; {sum(o.cpu_s for o in whole.values()):.0f} s of processor time."
        f"\n\n{table(head, rows)}\n"
    )


def _row(technique: str, pairs: Sequence[tuple[AblationOutcome, AblationOutcome]]) -> Row:
    lost = sum(before.is_proved and not after.is_proved for before, after in pairs)
    won = sum(after.is_proved and not before.is_proved for before, after in pairs)
    shares = [growth(before, after) for before, after in pairs]
    larger, smaller = [s for s in shares if s > 0], [-s for s in shares if s < 0]
    wider = [after.gap for before, after in pairs if after.gap > before.gap]
    times = [sum(outcome.cpu_s for outcome in column) for column in zip(*pairs, strict=True)]
    return (
        technique,
        len(pairs),
        f"-{lost}" * bool(lost) + f" +{won}" * bool(won) or "0",
        *_most(larger),
        *_most(smaller),
        percent(max(wider)) if wider else "-",
        f"{100 * (times[1] / times[0] - 1):+.0f} %",
    )


def _most(shares: Sequence[float]) -> tuple[int, str]:
    return len(shares), percent(max(shares)) if shares else "-"
