"""A job file in the making: its keys, where each came from, and what is to be said; and the tools
whose files become job files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import prod
from textwrap import wrap
from typing import Any

import yaml

from muster.structs import struct
from placement import BadInput
from placement.workload.parallelism import Parallelism, expert_axes
from placement.workload.training import Batch, ModelShape, Training
from scheduler.core.model.job import JobSpec
from scheduler.files.errors import InputError, Problem
from scheduler.files.job import job_from_document
from scheduler.files.yaml12 import Document


class Tool(StrEnum):
    """The program that a file belongs to."""

    MEGATRON = "megatron"
    TORCHTITAN = "torchtitan"
    DEEPSPEED = "deepspeed"
    ACCELERATE = "accelerate"
    MAXTEXT = "maxtext"


TITLES = {
    Tool.MEGATRON: "Megatron-LM arguments",
    Tool.TORCHTITAN: "a TorchTitan configuration",
    Tool.DEEPSPEED: "a DeepSpeed configuration",
    Tool.ACCELERATE: "a configuration of Accelerate",
    Tool.MAXTEXT: "a configuration of MaxText",
}
FORMATS = (
    "known are launch scripts of Megatron-LM or of any program that torchrun starts, TorchTitan's"
    " TOML and Python configurations, recipes of NeMo and Megatron-Bridge, DeepSpeed's JSON, and"
    " YAML of Accelerate and MaxText"
)
TOOL_BY_SUFFIX = {".toml": Tool.TORCHTITAN, ".json": Tool.DEEPSPEED, ".py": Tool.TORCHTITAN}
SECTIONS = {"parallelism": Parallelism, "model": ModelShape, "batch": Batch, "training": Training}


@struct(frozen=True, slots=True)
class Origin:
    """Where an option or key stands in a file, by its `name` there. `line` 0: not in the file."""

    name: str
    line: int = 0


GIVEN = Origin("--set")


@dataclass(slots=True)
class Draft:
    """A job file in the making. `source`: the file. `tool`: what wrote it, for people. `workdir`:
    where it is started.

    `model`: dotted keys of a model from elsewhere, for files that describe none.
    """

    source: str
    tool: str
    model: Mapping[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[Problem] = field(default_factory=list)
    workdir: str = ""

    def put(self, key: str, value: Any, origin: Origin | None = None) -> None:
        """Set a dotted key of the job file, unless it has its value from the user."""
        self.values.setdefault(key, value)
        if origin is not None:
            self.origins.setdefault(key, origin)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def with_given_degrees(self, degrees: Mapping[str, int]) -> dict[str, int]:
        """Return the degrees of a tool with the user's tp, cp and pp in their places, and replicas
        for as many ranks as before, unless the user gives these as well."""
        given = {axis: self.values.get(f"parallelism.{axis}") for axis in ("tp", "cp", "pp")}
        merged = {**degrees, **{axis: int(size) for axis, size in given.items() if size}}
        if merged == degrees or "parallelism.dp" in self.values:
            return merged
        ranks, inner = (_ranks_of_axes(each) for each in (degrees, {**merged, "dp": 1}))
        merged["dp"], odd = divmod(ranks, inner)
        if odd or not merged["dp"]:
            self.fault(GIVEN, f"{inner} ranks of a replica do not divide {ranks} GPUs")
            merged["dp"] = 1
        return merged

    def note_optimizer(self, name: Any, origin: Origin) -> None:
        """Note of an optimizer other than Adam that its state is not represented."""
        if isinstance(name, str) and "adam" not in name.lower():
            place = f"{origin.name} (line {origin.line})"
            self.note(f"not represented: {place}: its state is counted as Adam's")

    def fault(self, origin: Origin, message: str) -> None:
        self.faults.append(Problem(origin.name, message, self.source, origin.line))

    def raise_faults(self) -> None:
        """Raise the faults found so far, if any. Raises: InputError."""
        if self.faults:
            raise InputError(*sorted(self.faults, key=lambda fault: fault.line))

    @property
    def mapping(self) -> dict[str, Any]:
        """Return the content of the job file, keys in the order of its documentation."""
        nested: dict[str, Any] = {}
        for key in sorted(self.values, key=_place):
            section, _, name = key.partition(".")
            if name:
                nested.setdefault(section, {})[name] = self.values[key]
            else:
                nested[key] = self.values[key]
        return nested

    def checked(self) -> JobSpec:
        """Check the draft, and return the job that it describes. Raises: InputError, which names
        the options that the refused keys came from."""
        self.raise_faults()
        try:
            return job_from_document(Document(self.mapping, self.source))
        except InputError as error:
            raise InputError(*(self._blamed(problem) for problem in error.found)) from None

    def check_given(self) -> None:
        """Refuse a key from the user that no job file has, or a value that it cannot hold. Raises:
        InputError. It is called before the draft is filled: missing keys do not count yet."""
        try:
            job_from_document(Document({"parallelism": {}, **self.mapping}, self.source))
        except InputError as error:
            wrong = [problem for problem in error.found if problem.field in self.values]
            if wrong:
                raise InputError(*map(self._blamed, wrong)) from None

    def _blamed(self, problem: Problem) -> Problem:
        origin = self.origins.get(problem.field)
        if origin is None:
            return problem
        message = f"{problem.field}: {problem.message}"
        return Problem(origin.name, message, problem.source, origin.line)

    def text(self) -> str:
        """Return the text of the job file, with remarks as comments."""
        rows = [f"# Imported from {self.source}: {self.tool}."]
        for note in self.notes:
            rows += [f"# {row}" for row in wrap(f"- {note}", 96, subsequent_indent="  ")]
        body = "".join(
            yaml.safe_dump({key: value}, sort_keys=False, default_flow_style=flow, width=96)
            for key, value in self.mapping.items()
            for flow in (None if isinstance(value, dict) else False,)
        )
        return "\n".join(rows) + "\n" + body


def _place(key: str) -> tuple[int, int]:
    """Where a dotted key stands: the name, the sections, then what else there is."""
    section, _, name = key.partition(".")
    if section not in SECTIONS:
        return (0 if key == "name" else len(SECTIONS) + 1, 0)
    known = [field.name for field in fields(SECTIONS[section])]
    place = known.index(name) if name in known else len(known)
    return (1 + list(SECTIONS).index(section), place)


@struct(frozen=True, slots=True)
class TrainerSettings:
    """The settings of a configuration, by dotted key. `lines`: where they stand, 0 for another
    file. `computed`: keys whose values only running would tell. `older`: former names of keys.
    `read`: keys that were asked for."""

    draft: Draft
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    computed: Sequence[str] = ()
    older: Mapping[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def key(self, *keys: str) -> str:
        """Return the first of these keys that is set; the first of all where none is."""
        names = (name for key in keys for name in (key, self.older.get(key, key)))
        return next(
            (name for name in names if name in self.values or name in self.computed), keys[0]
        )

    def origin(self, *keys: str) -> Origin:
        key = self.key(*keys)
        return Origin(key, self.lines.get(key, 0))

    def get(self, *keys: str, default: Any = None) -> Any:
        """Return the value of the first of these keys that is set."""
        key = self.key(*keys)
        self.read.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def number(self, *keys: str, default: int = 1, least: int = 1) -> int:
        """Return a whole number; the default where the tool is to find it itself (-1, auto), and
        with a fault where it is none."""
        value, is_computed = self.get(*keys), self.key(*keys) in self.computed
        if value in (-1, "auto") or (value is None and not is_computed):
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if is_computed:
            message = "is computed, and nothing is run: give a recipe that states it"
        elif isinstance(value, bool) or not isinstance(value, int) or value < least:
            message = f"must be a whole number{' above 0' if least else ''}, is {value!r}"
        else:
            return value
        self.draft.fault(self.origin(*keys), message)
        return max(default, least)

    def note_unread(self, left: tuple[str, ...], places: Mapping[str, str] | None = None) -> None:
        """Note what is set and no key of a job file represents. `left`: beginnings of keys that the
        program alone needs. `places`: where keys stand, if not in lines of the file."""
        for key in (*self.lines, *self.computed):
            if key in self.read or key.startswith(left):
                continue
            place = places[key] if places else f"line {self.lines[key]}"
            why = ": it is computed" if key in self.computed else ""
            if why or self.values.get(key):
                self.draft.note(f"not represented: {key} ({place}){why}")


def flat_settings(
    draft: Draft,
    values: Mapping[str, Any],
    lines: Mapping[str, int],
    older: Mapping[str, str] | None = None,
) -> TrainerSettings:
    """Return the settings of nested sections by dotted key."""
    flat = dict(_flat(values, ""))
    return TrainerSettings(draft, flat, {key: lines.get(key, 0) for key in flat}, older=older or {})


def _flat(section: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def put_sharding(draft: Draft, sharding: str, origin: Origin | None = None, group: int = 0) -> None:
    """Put how state is sharded into the draft. `group`: ranks of a part that has all of it, 0 for
    all ranks."""
    draft.put("training.data_parallel", sharding, origin)
    if sharding in ("zero2", "zero3"):
        draft.put("training.sync", "micro_batch", origin)
    if group:
        draft.put("training.shard_group", group, origin)


def put_given_model(draft: Draft) -> bool:
    """Put the model that the user gives into the draft, for files that describe none. Return False,
    with a note, where there is none."""
    for key, value in draft.model.items():
        draft.put(key, value, Origin("--model"))
    if not any(key.startswith("model.") for key in draft.values):
        draft.note(
            "no model: the file describes none, so no bytes follow; --model FILE takes one from a"
            " job file or config.json, --set traffic.dp=... gives an axis' bytes by hand"
        )
        return False
    for key in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "sequence"):
        if f"model.{key}" not in draft.values:
            draft.fault(Origin(f"--set model.{key}"), "must be given: no file has it")
    return True


ORDER = "tp-cp-ep-dp-pp"
ZERO_STAGES = ("ddp", "zero1", "zero2", "zero3")


def put_axes(
    draft: Draft, degrees: Mapping[str, int], origins: Mapping[str, Origin], order: str = ORDER
) -> None:
    """Put the axes of a tool into the draft, and the order of its ranks. `degrees`: tp, cp, pp, dp,
    ep and etp (ranks of one expert), with ep over ranks of other axes."""
    degrees = draft.with_given_degrees(degrees)
    ep, dp = _experts(draft, degrees, origins["ep"])
    for axis in ("tp", "cp", "ep", "pp", "dp"):
        size = {**degrees, "ep": ep, "dp": dp}[axis]
        draft.put(f"parallelism.{axis}", size, origins.get(axis))
    draft.put("parallelism.order", order)


def _ranks_of_axes(degrees: Mapping[str, int]) -> int:
    """Return the ranks of these degrees, where ep lies over ranks of other axes."""
    return prod(degrees.get(axis, 1) for axis in ("tp", "cp", "pp", "dp"))


def _experts(draft: Draft, degrees: Mapping[str, int], origin: Origin) -> tuple[int, int]:
    """The ep and dp axes when experts are spread over ranks of several axes.

    An EP group of ep x etp ranks takes all of tp and cp first; what it has beyond these is muster's
    ep axis, on which as many bytes leave a host as in the tool's own group.
    """
    tp, cp, dp = degrees["tp"], degrees["cp"], degrees["dp"]
    group = degrees["ep"] * degrees["etp"]
    inner = tp * cp
    if degrees["ep"] == 1:
        return 1, dp
    if degrees["etp"] not in (1, tp):
        draft.note(f"experts are cut over {degrees['etp']} ranks, which is neither 1 nor tp")
    elif degrees["etp"] != tp:
        draft.put("training.expert_tp", 1, origin)
    try:
        ep, dp = expert_axes(inner, dp, group)
    except BadInput as error:
        draft.fault(origin, error.message)
        return 1, dp
    if cp > 1 or group < inner:
        draft.note(
            "experts are spread over tp or cp ranks in a way that muster's axes do not have:"
            " it counts them as copied over cp, and exchanges inside tp and cp not at all"
        )
    return ep, dp
