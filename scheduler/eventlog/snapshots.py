"""A state as bytes and back, so that a start replays the tail of the log alone.

One line for each entry of a map and for each other field of a state and its index: name, key and
value apart by tabs, key and value as JSON, which has no raw tabs or line ends. The first line says
what this is and in which format, the second has a digest of the fields that states have: where it
is another one, the log is read instead (recovery.py). All of it is deflated, and its checksum
is what finds a damaged one. Equal states give equal bytes. A field that a snapshot lacks has
its default.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from placement import BadInput
from placement.fabric.reader import from_spec
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.index import Index
from scheduler.core.model.state import State

TITLE = "muster snapshot 1"
_CHUNK = 100  # lines, a millisecond or two

Pause = Callable[[], object]


class BadSnapshot(ValueError):
    """Bytes that are no state of this version of muster."""


def encode(state: State, last_ns: int, pause: Pause = lambda: None) -> bytes:
    """Return lines of bytes for `state` and the time of its last event. `pause` is called every few
    milliseconds, so that a thread that encodes need not hold up the others.

    Cost: about 10 us a job, and some 40 bytes.
    """
    deflate = zlib.compressobj(level=1)
    parts, lines = [], _lines(state, last_ns)
    # Many lines at a time: for each call zlib lets go of Python's lock and waits for it again.
    while chunk := b"".join(islice(lines, _CHUNK)):
        parts.append(deflate.compress(chunk))
        pause()
    return b"".join(parts) + deflate.flush()


def entries(state: State) -> int:
    """Return how many lines the snapshot of a state has beyond those that every snapshot has."""
    maps = (name for name, form in _FORMS.items() if form.is_map)
    return sum(len(_value(state, name)) for name in maps)


def decode(body: bytes, pause: Pause = lambda: None) -> tuple[State, int]:
    """Return the state that `encode` wrote, and the time of its last event.

    Raises: BadSnapshot.
    """
    try:
        first, *lines = zlib.decompress(body).splitlines()
        if first != TITLE.encode():
            raise BadSnapshot(f"is {first[:40].decode()!r}, not {TITLE!r}")
        return _read(_paused(lines, pause))
    except (
        zlib.error,
        msgspec.DecodeError,
        UnicodeError,
        ValueError,
        KeyError,
        TypeError,
        BadInput,
        RecursionError,
    ) as error:
        raise BadSnapshot(str(error)) from None


def is_older(body: bytes) -> bool:
    """Return whether a snapshot was written by a release whose states had other fields. Not for a
    damaged one."""
    try:
        head = zlib.decompressobj().decompress(body, len(_HEAD))
    except zlib.error:
        return False
    return head.startswith(TITLE.encode()) and head != _HEAD


class _Form(NamedTuple):
    """How a field of the state is written: as JSON of `kind`, a map entry by entry.
    `plain` makes that of what the state has, `value` the other way round."""

    kind: Any
    decoder: msgspec.json.Decoder[Any]
    plain: Callable[[Any], Any]
    value: Callable[[Any], Any]
    is_map: bool = False


def _form(name: str, kind: Any) -> _Form:
    if name == "fabric":  # what it was made from
        spec = dict[str, Any] | None
        return _make_form(spec, lambda fabric: fabric and fabric.spec, lambda s: s and from_spec(s))
    if kind is int:  # hexadecimal: a set of hosts has as many digits as there are hosts
        return _make_form(str, lambda number: f"{number:x}", lambda text: int(text, 16))
    if get_origin(kind) is Mapping:
        return _make_form(get_args(kind)[1])._replace(is_map=True)
    if kind is NameList:
        return _make_form(tuple[str, ...], tuple, NameList)
    return _make_form(kind)


def _as_is(value: Any) -> Any:
    return value


def _make_form(
    kind: Any, plain: Callable[[Any], Any] = _as_is, value: Callable[[Any], Any] = _as_is
) -> _Form:
    return _Form(kind, msgspec.json.Decoder(kind), plain, value)


def _fields_line(forms: Mapping[str, _Form]) -> bytes:
    """A digest of the fields of states and of all that is in them."""
    kinds = [form.kind for form in forms.values()]
    schemas, components = msgspec.json.schema_components(kinds)
    shapes = _undescribed([*forms, *schemas, components])
    digest = blake2b(_encode(shapes), digest_size=8).hexdigest()
    return f'fields\t\t"{digest}"\n'.encode()


def _undescribed(schema: Any) -> Any:
    """A JSON schema without its docstrings."""
    if isinstance(schema, dict):
        items = ((k, v) for k, v in schema.items() if k != "description" or isinstance(v, dict))
        return {key: _undescribed(value) for key, value in items}
    return [_undescribed(each) for each in schema] if isinstance(schema, list | tuple) else schema


_encode = msgspec.json.Encoder().encode
_HINTS = get_type_hints(State) | get_type_hints(Index)
_IN_INDEX = [field.name for field in fields(Index)]
_NAMES = [field.name for field in fields(State) if field.name != "index"] + _IN_INDEX
_FORMS = {name: _form(name, _HINTS[name]) for name in _NAMES}
_HEAD = f"{TITLE}\n".encode() + _fields_line(_FORMS)  # the lines that every snapshot begins with


def _paused(lines: Iterable[bytes], pause: Pause) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        yield line
        if number % _CHUNK == 0:
            pause()


def _lines(state: State, last_ns: int) -> Iterator[bytes]:
    yield _HEAD + f"last_ns\t\t{last_ns}\n".encode()
    for name, form in _FORMS.items():
        value = _value(state, name)
        if form.is_map:
            for key, entry in value.items():
                yield b"%s\t%s\t%s\n" % (name.encode(), _encode(key), _encode(entry))
        else:
            yield b"%s\t\t%s\n" % (name.encode(), _encode(form.plain(value)))


def _read(lines: Iterable[bytes]) -> tuple[State, int]:
    last_ns = 0
    values: dict[str, Any] = {}
    maps: dict[str, dict[Any, Any]] = {name: {} for name, form in _FORMS.items() if form.is_map}
    for line in lines:
        name, key, body = line.split(b"\t")
        form = _FORMS.get(name.decode())
        if form is None:
            if name == b"last_ns":
                last_ns = int(body)
            elif name != b"fields":
                raise BadSnapshot(f"unknown field {name.decode()!r}")
        elif form.is_map:
            maps[name.decode()][msgspec.json.decode(key)] = form.decoder.decode(body)
        else:
            values[name.decode()] = form.value(form.decoder.decode(body))
    values.update((name, PersistentMap(entries)) for name, entries in maps.items())
    index = {name: values.pop(name) for name in _IN_INDEX if name in values}
    return State(**values, index=Index(**index)), last_ns


def _value(state: State, name: str) -> Any:
    return getattr(state.index if name in _IN_INDEX else state, name)
