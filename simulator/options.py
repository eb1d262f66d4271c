"""One replay described by plain values, so that it can be sent, stored and named.

The keys are the options of `muster replay` in the spelling of a case file, and two more:
`oversubscription` of the fabric's outermost tier, and `failure_scale`, by which every rate
of the failure model is multiplied.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from placement import BadInput
from placement.fabric.tree import Fabric, from_spec
from scheduler.core.queue.policies import queue_policy
from scheduler.files.defaults import LEAST_GAIN_PERCENT, RESIZE_EVERY_S
from scheduler.files.errors import InputError, Problem
from scheduler.files.health.policyfile import load_health
from scheduler.files.inputs import load_fabric
from scheduler.files.job_keys import parse_spares
from scheduler.files.tenants import load_tenants
from scheduler.files.windows import load_windows
from simulator import failures
from simulator.placers import PlacementStrategy
from simulator.timing import load_time_model
from simulator.traces.load import find_format
from simulator.traces.shapes import ShapeRule

Value = str | int | float | bool | None
Options = Mapping[str, Value]

DEFAULTS: dict[str, Value] = {
    "trace": None,
    "trace_format": None,
    "fabric": None,
    "oversubscription": None,
    "policy": "production",
    "placement": PlacementStrategy.MINIMUM_CUT.value,
    "spares": None,  # what jobs state
    "failures": None,
    "failure_scale": 1.0,
    "seed": 0,
    "checkpoint_s": None,  # these three: of the tenants file, else those of Costs
    "restart_s": None,
    "detect_s": None,
    "times": None,
    "until_h": None,
    "decision_s": 0.0,
    "attach": ShapeRule.RING.value,
    "tenants": None,
    "health": None,
    "windows": None,
    "assumed_limit_h": None,
    "resize_every_s": RESIZE_EVERY_S,
    "least_gain_percent": LEAST_GAIN_PERCENT,
    "since": None,
    "limit": None,
    "strict": False,
}
COSTS = ("checkpoint_s", "restart_s", "detect_s")
NEEDED = ("trace", "trace_format", "fabric")
FILES = ("trace", "fabric", "tenants", "health", "windows", "failures", "times")
TEXTS = ("failures", "times")  # may name files among other things
MEASURED = "measured"  # of decision_s; no case file has it, for it repeats nothing
FORMAT = 1  # of stored results; older ones are computed again


def checked(key: str, value: Value) -> Value:
    """The value in the form in which it is stored.

    Raises: BadInput, or InputError for what is wrong inside a file that it names.
    """
    if value is None:
        return None
    try:
        return _CHECKS[key](value)
    except InputError as error:
        if any(problem.source for problem in error.found):
            raise
        raise BadInput(key, error.found[0].message) from None


def option(key: str, value: Value) -> Value:
    """The same of what stands on a command line. Raises: InputError naming the option."""
    try:
        return checked(key, value)
    except BadInput as error:
        name = "trace" if key == "trace" else f"--{key.replace('_', '-')}"
        raise InputError(Problem(name, error.message)) from None


def conflicts(options: Options) -> Iterator[tuple[str, str]]:
    """(key, message) of what would be without effect."""
    if options["times"] is not None:
        for key in COSTS:
            if options[key] is not None:
                yield key, "has no effect beside times, which says it itself"
    if options["failures"] is None and options["failure_scale"] not in (None, 1):
        yield "failure_scale", "needs failures"


def fabric_of(options: Options) -> Fabric:
    """Its fabric, with the oversubscription that is asked for.

    Raises: InputError; an irregular fabric states bandwidths domain by domain.
    """
    fabric = load_fabric(str(options["fabric"]))
    ratio = options["oversubscription"]
    if ratio is None:
        return fabric
    tiers = [dict(tier) for tier in fabric.spec.get("tiers", ())]
    if "domains" in fabric.spec or not tiers:
        message = f"needs a regular fabric; {fabric.name} lists its domains"
        raise InputError(Problem("oversubscription", message))
    tiers[0]["oversubscription"] = ratio
    name = f"{fabric.name}-{ratio:g}to1"
    return from_spec({**fabric.spec, "name": name, "tiers": tiers})


def digest(options: Options) -> str:
    """Names the inputs of a replay by content, code included: equal digests, equal logs.

    Files count by what is in them, so that they may be moved and may not be changed.
    """
    named = {key: value for key, value in options.items() if key not in FILES}
    content = {
        "format": FORMAT,
        "code": code_digest(),
        "options": named,
        "fabric": fabric_of(options).digest,
        "files": [_file_digest(Path(path)) for path in files(options)],
        "texts": [_unpathed(options[key]) for key in TEXTS],
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def files(options: Options) -> Iterator[str]:
    """The files that a replay reads, beside its fabric, in a fixed order."""
    for key in ("trace", "tenants", "health", "windows"):
        if options[key] is not None:
            yield str(options[key])
    for key in TEXTS:
        yield from (piece for piece in _pieces(options[key]) if Path(piece).is_file())


def moved_to(folder: Path, key: str, value: Value) -> Value:
    """A file named beside the case file, as seen from here."""
    if not isinstance(value, str) or key not in FILES:
        return value
    if key not in TEXTS:
        is_file = key != "fabric" or (folder / value).is_file()
        return str(folder / value) if is_file else value
    pieces = re.split(r"([;:,])", value)
    return "".join(
        str(folder / piece) if piece and (folder / piece).is_file() else piece for piece in pieces
    )


def _pieces(value: Value) -> list[str]:
    """What of a text may name a file."""
    return [str(value), *re.split(r"[;:,]", str(value))] if value is not None else []


def _unpathed(value: Value) -> Value:
    """A text without the names of files, which count by content."""
    text = value
    for name in _pieces(value):
        if name and Path(name).is_file():
            text = str(text).replace(name, "FILE")
    return text


def _file_digest(path: Path) -> str:
    try:
        stat = path.stat()
        return _content_digest(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise InputError(Problem("", message, str(path))) from None


@lru_cache(maxsize=256)
def _content_digest(path: Path, mtime_ns: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Of the packages that decide: other code may decide otherwise."""
    top = Path(__file__).parents[1]
    found = hashlib.sha256()
    for package in ("placement", "scheduler", "simulator"):
        for path in sorted((top / package).rglob("*.py")):
            if "report" in path.parts:  # decides nothing
                continue
            found.update(path.relative_to(top).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _text(value: Value) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or str(value) == "":
        raise BadInput("", f"must be a text, not {value!r}")
    return str(value)


def _whole(low: int, high: int = 2**31 - 1) -> Callable[[Value], int]:
    def check(value: Value) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadInput("", f"must be a whole number from {low} to {high}, not {value!r}")
        return value

    return check


def _number(low: float, high: float, *, is_above: bool = False) -> Callable[[Value], float]:
    """`is_above`: `low` itself will not do."""
    wanted = f"above {low:g} and up to {high:g}" if is_above else f"from {low:g} to {high:g}"

    def check(value: Value) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        found = float(value or 0) if is_number else low - 1
        if not low <= found <= high or (is_above and found == low):
            raise BadInput("", f"must be a number {wanted}, not {value!r}")
        return float(value or 0)

    return check


def _choice(known: Iterable[str]) -> Callable[[Value], str]:
    names = list(known)

    def check(value: Value) -> str:
        if value not in names:
            raise BadInput("", f"must be one of {', '.join(names)}, not {value!r}")
        return str(value)

    return check


def _flag(value: Value) -> bool:
    if not isinstance(value, bool):
        raise BadInput("", f"must be true or false, not {value!r}")
    return value


def _good(load: Callable[[str], Any]) -> Callable[[Value], str]:
    """A text that `load` accepts."""

    def check(value: Value) -> str:
        load(_text(value))
        return str(value)

    return check


def _readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InputError(Problem("", f"{path}: {error.strerror or error}")) from None


_CHECKS: dict[str, Callable[[Value], Value]] = {
    "trace": _good(_readable),
    "trace_format": _good(find_format),
    "fabric": _good(load_fabric),
    "oversubscription": _number(0.01, 1000),
    "policy": _good(queue_policy),
    "placement": _choice(PlacementStrategy),
    "times": _good(load_time_model),
    "until_h": _number(0, 876_000, is_above=True),
    "attach": _choice(ShapeRule),
    "spares": lambda value: str(value) if parse_spares(value) else None,
    "failures": _good(failures.parse),
    "failure_scale": _number(1e-6, 1e6),
    "seed": _whole(0),
    "checkpoint_s": _whole(0),
    "restart_s": _whole(0),
    "detect_s": _whole(0),
    "decision_s": _number(0, 86_400),
    "tenants": _good(load_tenants),
    "health": _good(load_health),
    "windows": _good(load_windows),
    "assumed_limit_h": _number(0.01, 87_600),
    "resize_every_s": _whole(0),
    "least_gain_percent": _whole(0),
    "since": _text,
    "limit": _whole(1),
    "strict": _flag,
}
