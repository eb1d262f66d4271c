"""The text of `--failures`: models, presets and files, joined with `;`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from muster.structs import replace, struct
from placement import BadInput
from placement.fabric.tree import Fabric
from scheduler.files.errors import InputError, Problem
from simulator.failures import infinitehbd
from simulator.failures.cause import HOST, REPAIRS, FailureCause, LemonHosts, RepairTime
from simulator.failures.fleetlog import ALL, FleetLog, LogExtent, LogWindow, laid_out
from simulator.failures.hostevents import read_csv
from simulator.failures.outage import Outage, merged
from simulator.failures.presets import PRESETS, preset
from simulator.failures.process import outages
from simulator.failures.yamlfile import load_causes
from simulator.traces.record import FieldError, number

MODELS = ("poisson", "weibull")
_COMMON = ("rate", "repair_h", "repair", "sigma", "cause", "scope", "group", "lemons")
_KEYS = {"poisson": _COMMON, "weibull": (*_COMMON, "shape", "age_days")}
LOGS: dict[str, Callable[[Path], FleetLog]] = {"infinitehbd": infinitehbd.read}


ReadLog = Callable[[Sequence[str]], FleetLog]  # for a fabric of these hosts


@struct(frozen=True, slots=True)
class _Part:
    """One part of the text: causes, or a log."""

    causes: tuple[FailureCause, ...] = ()
    log: ReadLog | None = None


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

    parts: tuple[_Part, ...]
    window: LogWindow = ALL

    def __call__(self, fabric: Fabric, seed: int) -> FailureStream:
        """Raises: InputError."""
        streams: list[Iterable[Outage]] = []
        logs: list[LogExtent] = []
        try:
            for part in self.parts:
                streams += [outages(cause, fabric, seed) for cause in part.causes]
                if part.log:
                    log = self._cut(part.log(fabric.hosts))
                    streams.append(laid_out(log, fabric, seed, self.window.is_repeated))
                    logs.append(LogExtent.of(log, self.window.is_repeated))
        except BadInput as error:
            raise _bad(f"{error.field}: {error.message}") from None
        return FailureStream(merged(streams), tuple(logs))

    def _cut(self, log: FleetLog) -> FleetLog:
        try:
            return self.window.cut(log)
        except BadInput as error:
            option = f"--{error.field.replace('_', '-')}"
            raise InputError(Problem(option, error.message)) from None


def parse(text: str, scale: float = 1.0, window: LogWindow = ALL) -> FailureSource:
    """Parse the text that describes failures. `scale`: by which every rate is multiplied; what was
    recorded has none. `window`: of what was recorded.

    Raises: InputError naming what is wrong, for a file with its line.
    """
    parts = [_file(Path(text))] if Path(text).is_file() else [*map(_part, text.split(";"))]
    causes = [cause for part in parts for cause in part.causes]
    names = Counter(cause.name for cause in causes)
    if twice := [name for name, count in names.items() if count > 1]:
        raise _bad(f"cause {twice[0]!r} is named twice; give each model its own cause=")
    has_logs = any(part.log for part in parts)
    if scale != 1 and has_logs:
        raise _bad("recorded failures cannot be scaled; only models have rates")
    if window != ALL and not has_logs:
        option = "--failures-repeat" if window.is_repeated else "--failures-from-h"
        raise InputError(Problem(option, f"is for recorded failures; {text} names no log"))
    return FailureSource(tuple(_scaled(part, scale) for part in parts), window)


def _scaled(part: _Part, scale: float) -> _Part:
    causes = tuple(replace(cause, rate=cause.rate * scale) for cause in part.causes)
    return replace(part, causes=causes)


def _part(text: str) -> _Part:
    text = text.strip()
    kind, colon, body = text.partition(":")
    if kind in MODELS and colon:
        return _Part((_model(kind, body),))
    if kind in PRESETS:
        return _Part(_preset(kind, body))
    if kind in LOGS and colon:
        log = LOGS[kind](Path(body))
        return _Part(log=lambda hosts: log)
    if colon and not Path(text).is_file():
        known = ", ".join([*MODELS, *PRESETS, *LOGS])
        raise _bad(f"unknown model {kind!r}; there are {known}")
    return _file(Path(text))


def _file(path: Path) -> _Part:
    if not path.is_file():
        raise _bad(
            f"{str(path)!r} is neither a file nor a model like poisson:rate=6.5,repair_h=24"
            f" nor one of {', '.join(PRESETS)}"
        )
    if path.suffix in (".yaml", ".yml"):
        return _Part(load_causes(path))
    return _Part(log=partial(read_csv, path))


def _preset(name: str, body: str) -> tuple[FailureCause, ...]:
    values = _values(body, ("scale", "lemons"))
    causes = preset(name, _positive(values, "scale") if "scale" in values else 1.0)
    bad = _lemons(values["lemons"]) if "lemons" in values else None
    return tuple(replace(cause, lemons=bad) for cause in causes)


def _model(kind: str, body: str) -> FailureCause:
    values = _values(body, _KEYS[kind])
    rate = _positive(values, "rate")
    shape = _positive(values, "shape") if kind == "weibull" else 1.0
    scope = values.get("scope", HOST)
    if "lemons" in values and scope != HOST:
        raise _bad("lemons are hosts; leave scope out")
    return FailureCause(
        values.get("cause", "host-down"),
        rate,
        _repair(values),
        shape,
        _positive(values, "age_days") if "age_days" in values else 0.0,
        scope,
        _whole_number(values, "group") if "group" in values else 1,
        _lemons(values["lemons"]) if "lemons" in values else None,
    )


def _repair(values: Mapping[str, str]) -> RepairTime:
    kind = values.get("repair", "exponential")
    if kind not in REPAIRS:
        raise _bad(f"repair must be {', '.join(REPAIRS[:-1])} or {REPAIRS[-1]}, not {kind!r}")
    if "sigma" in values and kind != "lognormal":
        raise _bad("sigma= is of repair=lognormal")
    sigma = _positive(values, "sigma") if "sigma" in values else 1.0
    if values.get("repair_h") == "0":
        return RepairTime(0, "fixed")
    return RepairTime(_positive(values, "repair_h"), kind, sigma)


def _lemons(text: str) -> LemonHosts:
    """`1.2%x20`: a share of the hosts, and how many times as often they fail."""
    share, sign, factor = text.partition("x")
    if not sign or not share.endswith("%"):
        raise _bad(f"lemons must be like 1.2%x20, not {text!r}")
    values = {"lemons": share.removesuffix("%"), "factor": factor}
    lemons = LemonHosts(_positive(values, "lemons") / 100, _positive(values, "factor"))
    if lemons.share > 1 or lemons.factor <= 1:
        raise _bad(f"lemons are at most 100 % and fail more than 1 x as often, not {text!r}")
    return lemons


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


def _positive(values: Mapping[str, str], key: str) -> float:
    if key not in values:
        raise _bad(f"{key}= is missing")
    try:
        value = number(values[key], key)
    except FieldError as error:
        raise _bad(f"{key} {error.detail}") from None
    if value <= 0:
        raise _bad(f"{key} must be more than 0, not {values[key]}")
    return value


def _whole_number(values: Mapping[str, str], key: str) -> int:
    value = _positive(values, key)
    if not value.is_integer():
        raise _bad(f"{key} must be a whole number, not {values[key]}")
    return int(value)


def _bad(message: str) -> InputError:
    return InputError(Problem("--failures", message))
