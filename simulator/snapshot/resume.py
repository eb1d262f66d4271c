"""What a snapshot is a snapshot of, and whether a replay can go on from it.

The rest of a replay goes on as it began: another trace, fabric, tenants file or time model
would make a history that never was. Who decides and what fails may change (WHAT_IF): the
state until then is a warmed-up cluster, and both futures have the same past.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scheduler.core import State
from scheduler.eventlog import snapshots
from scheduler.files.errors import InputError, Problem
from simulator.snapshot.file import Content, read, refused
from simulator.snapshot.plain import form, told
from simulator.snapshot.standing import Standing
from simulator.snapshot.streams import Stream
from simulator.study.options import FILES, Options, Value, content_digest, fabric_of

WHAT_IF = ("policy", "placement", "failures", "seed", "decision_s", "until_h")
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """The inputs of a replay: `options` in force, `streams` of failures so far, and
    `changes` on the way. `contents`: digests of the files and texts among the options."""

    options: dict[str, Value]
    contents: dict[str, str]
    streams: list[Stream]
    changes: list[dict[str, Any]]

    @staticmethod
    def of(options: Options) -> Record:
        """Of a replay that begins. Raises: InputError."""
        contents = _contents(options)
        return Record(dict(options), contents, [_stream(options, contents)], [])


@dataclass(frozen=True, slots=True)
class Resumed:
    """A replay to go on with. `files`: what it had written; `seconds`: that it had taken.
    `has_other_outages`: others fail from here on. `code`: of the muster that wrote it."""

    path: Path
    record: Record
    kept: dict[str, Any]
    state: State
    files: dict[str, bytes]
    seconds: float
    code: str
    has_other_outages: bool = False

    def damaged(self) -> InputError:
        """The digest is right, and what is there does not fit together."""
        return refused(self.path, "is not what muster writes")


def fields_digest(*kinds: Any) -> str:
    """Names what a snapshot keeps of a replay, in all its parts."""
    from hashlib import sha256

    text = "; ".join([form(Standing).told, *map(told, kinds)])
    return sha256(text.encode()).hexdigest()[:16]


def load(path: Path, given: Mapping[str, Value], fields: str) -> Resumed:
    """The replay of the snapshot, with what of the options is `given` anew.

    Raises: InputError when it cannot be gone on with, or not with these.
    """
    content = read(path)
    try:
        resumed = _resumed(path, content, fields)
    except snapshots.BadSnapshot as error:
        raise refused(path, f"holds a state that this muster cannot read: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise refused(path, "is not what muster writes") from None
    return _changed(resumed, given)


def _resumed(path: Path, content: Content, fields: str) -> Resumed:
    header, parts = content.header, dict(content.parts)
    if header["fields"] != fields:
        message = "was written by another version of muster, which keeps other things of a replay"
        raise refused(path, message)
    state, _ = snapshots.decode(parts.pop("state"))
    kept = json.loads(parts.pop("replay"))
    record = header["record"]
    streams = [Stream(**stream) for stream in record.pop("streams")]
    found = Record(streams=streams, **record)
    return Resumed(path, found, kept, state, parts, header["seconds"], header["code"])


def _changed(resumed: Resumed, given: Mapping[str, Value]) -> Resumed:
    before = resumed.record
    options = {**before.options, **given}
    contents = _contents(options)
    wrong = [*_refusals(before, options, contents, given)]
    if wrong:
        raise InputError(*wrong)
    standing: Standing = form(Standing).load(resumed.kept["standing"])
    after_ns = standing.now_ns - standing.zero_ns
    if (until_h := options["until_h"]) is not None and float(until_h) * 3600e9 < after_ns:
        message = f"must be after the snapshot, {after_ns / 3600e9:g} h"
        raise InputError(Problem("--until-h", message))
    changes, streams = before.changes, before.streams
    changed = {
        key: [before.options[key], options[key]]
        for key in WHAT_IF
        if before.options[key] != options[key]
    }
    if changed:
        changes = [*changes, {"after_s": after_ns / SECOND_NS, "changed": changed}]
    new = _stream(options, contents, after_ns, standing.outages)
    has_other = (new.digest, new.seed) != (streams[-1].digest, streams[-1].seed)
    has_other = has_other and not (new.failures is None and streams[-1].failures is None)
    if has_other:
        streams = [*streams, new]
    record = Record(options, contents, streams, changes)
    return Resumed(
        resumed.path,
        record,
        resumed.kept,
        resumed.state,
        resumed.files,
        resumed.seconds,
        resumed.code,
        has_other,
    )


def _refusals(
    before: Record, options: Options, contents: Mapping[str, str], given: Mapping[str, Value]
) -> list[Problem]:
    """What cannot be gone on with, and why."""
    found = []
    for key, value in options.items():
        name = "TRACE" if key == "trace" else f"--{key.replace('_', '-')}"
        if key in contents or key in before.contents:
            is_same = contents.get(key) == before.contents.get(key)
        else:
            is_same = value == before.options.get(key)
        if is_same or (key in WHAT_IF and key in given):
            continue
        if key in ("trace", "tenants", "health", "windows") and not Path(str(value)).is_file():
            found.append(Problem(name, f"{value} is not there; say where it is now"))
        elif key in given:
            was, now = _shown(before.options.get(key)), _shown(value)
            message = f"is {was} in the snapshot and cannot become {now} on the way"
            if was == now:
                message = f"{now} is not what it was when the snapshot was taken"
            choice = ", ".join(f"--{each.replace('_', '-')}" for each in WHAT_IF)
            found.append(Problem(name, f"{message}; {choice} can"))
        else:
            message = f"{_shown(value)} is not what it was when the snapshot was taken"
            found.append(Problem(name, message))
    return found


def _shown(value: Value) -> str:
    return "not given" if value is None else str(value)


def _contents(options: Options) -> dict[str, str]:
    """Digests by what is in the files that the options name, which may have moved."""
    found = {key: content_digest(options[key]) for key in FILES if options[key] is not None}
    return {**found, "fabric": fabric_of(options).digest}


def _stream(
    options: Options, contents: Mapping[str, str], from_ns: int = 0, past: int = 0
) -> Stream:
    text = options["failures"]
    return Stream(
        None if text is None else str(text),
        float(options["failure_scale"] or 1),
        int(options["seed"] or 0),
        contents.get("failures", ""),
        from_ns,
        past,
    )


def plain(record: Record) -> dict[str, Any]:
    """As JSON has it."""
    return asdict(record)
