"""Host failures: seeded models and files, as one stream of outages in time order.

A model, or several joined with `;`, each a cause of its own:

    poisson:rate=6.5,repair_h=24                        per 1,000 host-days
    poisson:rate=3,repair_h=4,repair=fixed,cause=gpu

Failures of one cause are a Poisson process over the fleet; repairs take an exponential
or a fixed time. Each cause draws from random streams of its own, named by the seed, so
that adding or changing one shifts no other.

A file is CSV with a header, times in seconds after the trace's first submit:

    time_s,host,state,cause
    3600,z0-r00-h1,down,gpu-lost
    90000,z0-r00-h1,up,
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from pathlib import Path
from random import Random

from scheduler.problems import InputError, Problem
from simulator.traces.record import SECOND_NS, FieldError, number, seconds_ns

DAY_S = 86_400
REPAIRS = ("exponential", "fixed")
COLUMNS = ["time_s", "host", "state", "cause"]


@dataclass(frozen=True, slots=True, order=True)
class Outage:
    """A host goes down or comes back. `time_ns` counts from the first submit."""

    time_ns: int
    host: str
    is_down: bool
    cause: str


@dataclass(frozen=True, slots=True)
class Poisson:
    """`rate`: failures per 1,000 host-days; `repair_h`: mean time out of service."""

    rate: float
    repair_h: float
    repair: str = "exponential"
    cause: str = "host-down"

    def outages(self, hosts: Sequence[str], seed: int) -> Iterator[Outage]:
        """Endless: what ends first is the trace."""
        gaps = Random(f"{seed}/failures/{self.cause}")
        repairs = Random(f"{seed}/repairs/{self.cause}")
        per_s = self.rate * len(hosts) / 1000 / DAY_S
        ups: list[Outage] = []
        time_s = 0.0
        while True:
            time_s += gaps.expovariate(per_s)
            host = gaps.choice(hosts)
            down_ns = round(time_s * SECOND_NS)
            while ups and ups[0].time_ns <= down_ns:
                yield heappop(ups)
            yield Outage(down_ns, host, True, self.cause)
            up_ns = down_ns + round(self._repair_s(repairs) * SECOND_NS)
            heappush(ups, Outage(up_ns, host, False, self.cause))

    def _repair_s(self, repairs: Random) -> float:
        mean_s = self.repair_h * 3600
        return mean_s if self.repair == "fixed" else repairs.expovariate(1 / mean_s)


Source = Callable[[Sequence[str], int], Iterable[Outage]]


def parse(text: str) -> Source:
    """Outages of a model text, or of a file of that name, for (hosts, seed).

    Raises: InputError naming what is wrong, for a file with its line.
    """
    if text.partition(":")[0] == "poisson":
        models = [_model(part.strip()) for part in text.split(";")]
        causes = Counter(model.cause for model in models)
        if twice := [cause for cause, n in causes.items() if n > 1]:
            raise _bad(f"cause {twice[0]!r} is named twice; give each model its own cause=")
        return lambda hosts, seed: merged(model.outages(hosts, seed) for model in models)
    path = Path(text)
    if not path.is_file():
        raise _bad(f"{text!r} is neither a file nor a model like poisson:rate=6.5,repair_h=24")
    return lambda hosts, seed: merged([_file(path, set(hosts))])


def merged(streams: Iterable[Iterable[Outage]]) -> Iterator[Outage]:
    """One stream of true changes: a host that is down twice comes back once."""
    down: Counter[str] = Counter()
    for outage in merge(*streams):
        before = down[outage.host]
        down[outage.host] = max(0, before + (1 if outage.is_down else -1))
        if before + down[outage.host] == 1:
            yield outage


def _model(text: str) -> Poisson:
    kind, _, body = text.partition(":")
    if kind != "poisson":
        raise _bad(f"unknown model {kind!r}; there is poisson")
    values: dict[str, str] = {}
    for item in body.split(","):
        key, equals, value = item.strip().partition("=")
        if key not in ("rate", "repair_h", "repair", "cause") or not equals:
            raise _bad(f"{item!r} is not one of rate=, repair_h=, repair=, cause=")
        values[key] = value
    repair = values.get("repair", "exponential")
    if repair not in REPAIRS:
        raise _bad(f"repair must be {' or '.join(REPAIRS)}, not {repair!r}")
    cause = values.get("cause", "host-down")
    return Poisson(_positive(values, "rate"), _positive(values, "repair_h"), repair, cause)


def _positive(values: dict[str, str], key: str) -> float:
    if key not in values:
        raise _bad(f"{key}= is missing")
    try:
        value = number(values[key], key)
    except FieldError as error:
        raise _bad(f"{key} {error.told}") from None
    if value <= 0:
        raise _bad(f"{key} must be more than 0, not {values[key]}")
    return value


def _bad(message: str) -> InputError:
    return InputError(Problem("--failures", message))


def _file(path: Path, hosts: set[str]) -> list[Outage]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(enumerate(csv.reader(file), start=1))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem("", f"cannot be read: {error}", str(path))) from None
    if not rows or rows[0][1] != COLUMNS:
        raise InputError(Problem("header", f"must be {','.join(COLUMNS)}", str(path), 1))
    outages: list[Outage] = []
    wrong: list[Problem] = []
    for line, row in rows[1:]:
        try:
            outages += [_row(row, hosts)] if row else []
        except FieldError as error:
            wrong.append(Problem(error.field, error.told, str(path), line))
    if wrong:
        raise InputError(*wrong)
    return sorted(outages, key=lambda outage: outage.time_ns)


def _row(row: list[str], hosts: set[str]) -> Outage:
    if len(row) != len(COLUMNS):
        raise FieldError("columns", f"must be {len(COLUMNS)}", str(len(row)))
    time_s, host, state, cause = row
    time_ns = seconds_ns(time_s, "time_s")
    if time_ns < 0:
        raise FieldError("time_s", "must not be negative", time_s)
    if host not in hosts:
        raise FieldError("host", "must be a host of this fabric", host)
    if state not in ("down", "up"):
        raise FieldError("state", "must be down or up", state)
    return Outage(time_ns, host, state == "down", cause or "host-down")
