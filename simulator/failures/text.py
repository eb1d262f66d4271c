"""The text of `--failures`: models, presets and files, joined with `;`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from muster.structs import replace, struct
from placement import BadInput
from placement.fabric.tree import Fabric
from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import Document, load
from scheduler.files.yaml12 import parse as parse_yaml
from simulator.failures import infinitehbd
from simulator.failures.cause import HOST, FailureCause
from simulator.failures.fleetlog import ALL, FleetLog, LogExtent, LogWindow, laid_out
from simulator.failures.hostevents import read_csv
from simulator.failures.outage import Outage, merged
from simulator.failures.presets import PRESETS
from simulator.failures.process import outages
from simulator.failures.yamlfile import causes_of

MODELS = ("poisson", "weibull")
OPTION = "--failures"
# The key of a file of causes that each part of a text stands for.
_COMMON = {
    **{"rate": "rate", "repair_h": "repair.mean_h", "repair": "repair.kind"},
    **{"sigma": "repair.sigma", "cause": "name", "scope": "scope", "group": "group"},
}
_PLACES = {
    "poisson": _COMMON,
    "weibull": {**_COMMON, "shape": "life.shape", "age_days": "life.age_days"},
}
_OF_PRESET = {"scale": "scale"}
_TEXTS = ("cause", "scope", "repair")
LOGS: dict[str, Callable[[Path], FleetLog]] = {"infinitehbd": infinitehbd.read}


ReadLog = Callable[[Sequence[str]], FleetLog]  # for a fabric of these hosts


@struct(frozen=True, slots=True)
class FailureStream:
    """Outages in time order, perhaps for ever."""

    outages: Iterable[Outage] = ()
    logs: tuple[LogExtent, ...] = ()

    def __iter__(self) -> Iterator[Outage]:
        return iter(self.outages)


@struct(frozen=True, slots=True)
class FailureSource:
    """Makes the failures that a text describes, for any fabric and seed."""

    parts: tuple[FailureCause | ReadLog, ...]
    window: LogWindow = ALL

    def __call__(self, fabric: Fabric, seed: int) -> FailureStream:
        """Raises: InputError."""
        streams: list[Iterable[Outage]] = []
        logs: list[LogExtent] = []
        try:
            for part in self.parts:
                if isinstance(part, FailureCause):
                    streams.append(outages(part, fabric, seed))
                else:
                    log = self.window.cut(part(fabric.hosts))
                    streams.append(laid_out(log, fabric, seed, self.window.is_repeated))
                    logs.append(LogExtent.of(log, self.window.is_repeated))
        except BadInput as error:
            raise _bad(f"{error.field}: {error.message}") from None
        return FailureStream(merged(streams), tuple(logs))


def parse(text: str, scale: float = 1.0, window: LogWindow = ALL) -> FailureSource:
    """Parse the text that describes failures. `scale`: by which every rate is multiplied; what was
    recorded has none. `window`: of what was recorded.

    Raises: InputError naming what is wrong, for a file with its line.
    """
    texts = [text] if Path(text).is_file() else text.split(";")
    parts = [part for each in texts for part in _parts(each.strip())]
    causes = [part for part in parts if isinstance(part, FailureCause)]
    names = Counter(cause.name for cause in causes)
    if twice := [name for name, count in names.items() if count > 1]:
        raise _bad(f"cause {twice[0]!r} is named twice; give each model its own cause=")
    has_logs = len(causes) < len(parts)
    if scale != 1 and has_logs:
        raise _bad("recorded failures cannot be scaled; only models have rates")
    if window != ALL and not has_logs:
        option = "--failures-repeat" if window.is_repeated else "--failures-from-h"
        raise InputError(Problem(option, f"is for recorded failures; {text} names no log"))
    if scale != 1:
        return FailureSource(tuple(replace(each, rate=each.rate * scale) for each in causes))
    return FailureSource(tuple(parts), window)


def _parts(text: str) -> Sequence[FailureCause | ReadLog]:
    """Return the causes of a model, preset or file of causes, or the reader of a log."""
    kind, colon, body = text.partition(":")
    if Path(text).is_file():
        is_causes = Path(text).suffix in (".yaml", ".yml")
        return causes_of(load(text)) if is_causes else [partial(read_csv, Path(text))]
    if kind in PRESETS or (kind in MODELS and colon):
        return _causes(kind, body)
    if kind in LOGS and colon:
        log = LOGS[kind](Path(body))
        return [lambda hosts: log]
    if colon:
        known = ", ".join([*MODELS, *PRESETS, *LOGS])
        raise _bad(f"unknown model {kind!r}; there are {known}")
    raise _bad(
        f"{text!r} is neither a file nor a model like poisson:rate=6.5,repair_h=24"
        f" nor one of {', '.join(PRESETS)}"
    )


def _causes(kind: str, body: str) -> tuple[FailureCause, ...]:
    """Return the causes of a preset or model, read as the file of causes that says the same."""
    places = _PLACES.get(kind, _OF_PRESET)
    values = _values(body, (*places, "lemons"))
    cause: dict[str, Any] = {"name": "host-down", "repair": {}, "life": {}}
    file: dict[str, Any] = {"preset": kind} if kind in PRESETS else {"causes": [cause]}
    for key, text in values.items():
        section, _, name = places.get(key, "").rpartition(".")
        if key == "lemons":
            file[key] = _lemons(text)
        elif kind in PRESETS:
            file[key] = parse_yaml(text).value
        else:
            inside = cause[section] if section else cause
            inside[name] = text if key in _TEXTS else parse_yaml(text).value
    if kind == "weibull" and "shape" not in values:
        raise _bad("shape= is missing")
    if "lemons" in values and values.get("scope", HOST) != HOST:
        raise _bad("lemons are hosts; leave scope out")
    try:
        return causes_of(Document(file, OPTION))
    except InputError as error:
        names = {f"causes.0.{place}": key for key, place in places.items()}
        found = ((names.get(each.field, each.field), each.message) for each in error.found)
        raise InputError(
            *(Problem(OPTION, f"{key}: {message}") for key, message in found)
        ) from None


def _lemons(text: str) -> dict[str, Any]:
    """Read `1.2%x20`: a share of the hosts, and how many times as often they fail."""
    if (match := re.fullmatch(r"([\d.]+)%x([\d.]+)", text)) is None:
        raise _bad(f"lemons must be like 1.2%x20, not {text!r}")
    share, factor = (parse_yaml(part).value for part in match.groups())
    return {"share": share / 100 if isinstance(share, int | float) else share, "factor": factor}


def _values(body: str, known: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for item in body.split(",") if body.strip() else ():
        key, equals, value = item.strip().partition("=")
        if key not in known or not equals:
            choice = ", ".join(f"{name}=" for name in known) or "nothing here"
            raise _bad(f"{item.strip()!r} is not one of {choice}")
        if key in values:
            raise _bad(f"{key}= is given twice")
        values[key] = value
    return values


def _bad(message: str) -> InputError:
    return InputError(Problem(OPTION, message))
