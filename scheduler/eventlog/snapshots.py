"""A state as bytes and back, so that a start replays the tail of the log alone.

One line for each entry of a map and for each other field: name, key and value apart by
tabs, key and value as JSON, which has no raw tabs or line ends. The first line says
what this is and in which format, the second has a digest of the fields that states have: where it
is another one, the log is read instead (recovery.py). All of it is deflated, and its checksum
is what finds a damaged one. Equal states give equal bytes. A field that a snapshot lacks has
its default.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from placement import BadInput
from placement.fabric.tree import from_spec
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.state import State

TITLE = "muster snapshot 1"
_CHUNK = 100  # lines, a millisecond or two

Pause = Callable[[], object]
Row = tuple[bytes, bytes, bytes]  # name of the field, key in a map, value as JSON


class BadSnapshot(ValueError):
    """Bytes that are no state of this version of muster."""


def encode(state: State, last_ns: int, pause: Pause = lambda: None) -> bytes:
    """`state` and the time of its last event. `pause` is called every few milliseconds,
    so that a thread that encodes need not hold up the others.

    Cost: about 15 us a job, and some 60 bytes.
    """
    deflate = zlib.compressobj(level=1)
    parts, lines = [], _lines(state, last_ns)
    # Many lines at a time: for each call zlib lets go of Python's lock and waits for it again.
    while chunk := b"".join(islice(lines, _CHUNK)):
        parts.append(deflate.compress(chunk))
        pause()
    return b"".join(parts) + deflate.flush()


def entries(state: State) -> int:
    """Lines of its snapshot, but for those that every snapshot has."""
    maps = (name for name, form in _forms().items() if isinstance(form, _MapForm))
    return sum(len(getattr(state, name)) for name in maps)


def decode(body: bytes, pause: Pause = lambda: None) -> tuple[State, int]:
    """The state that `encode` wrote, and the time of its last event.

    Raises: BadSnapshot.
    """
    try:
        first, *lines = zlib.decompress(body).splitlines()
        if first != TITLE.encode():
            raise BadSnapshot(f"is {first[:40].decode()!r}, not {TITLE!r}")
        return _read(_row(line) for line in _paused(lines, pause))
    except ValidationError as error:
        raise BadSnapshot(str(error.errors()[0]["msg"])) from None
    except (
        zlib.error,
        UnicodeError,
        ValueError,
        KeyError,
        TypeError,
        BadInput,
        RecursionError,
    ) as error:
        raise BadSnapshot(str(error)) from None


def is_older(body: bytes) -> bool:
    """Whether states had other fields when this was written. Not for a damaged one."""
    try:
        head = zlib.decompressobj().decompress(body, len(_head()))
    except zlib.error:
        return False
    return head.startswith(TITLE.encode()) and head != _head()


def prepare() -> None:
    """Make what the first of all snapshots would have to: a tenth of a second, which a server
    spends before it answers anybody."""
    _head()


@cache
def _head() -> bytes:
    """The lines that every snapshot begins with."""
    forms = repr([(name, form.fields()) for name, form in _forms().items()])
    digest = blake2b(forms.encode(), digest_size=8).hexdigest()
    return f'{TITLE}\nfields\t\t"{digest}"\n'.encode()


def _row(line: bytes) -> Row:
    name, key, value = line.split(b"\t")
    return name, key, value


def _paused(lines: Iterable[bytes], pause: Pause) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        yield line
        if number % _CHUNK == 0:
            pause()


def _lines(state: State, last_ns: int) -> Iterator[bytes]:
    yield _head() + f"last_ns\t\t{last_ns}\n".encode()
    for name, form in _forms().items():
        value = getattr(state, name)
        if isinstance(form, _MapForm):
            for key, entry in value.items():
                yield b"%s\t%s\t%s\n" % (name.encode(), _json(key), form.values.dump_json(entry))
        else:
            yield b"%s\t\t%s\n" % (name.encode(), form.dump(value))


def _read(rows: Iterable[Row]) -> tuple[State, int]:
    forms, last_ns = _forms(), 0
    found: dict[str, Any] = {}
    maps: dict[str, dict[Any, Any]] = {n: {} for n, f in forms.items() if isinstance(f, _MapForm)}
    for name, key, value in rows:
        form = forms.get(name.decode())
        if isinstance(form, _MapForm):
            maps[name.decode()][json.loads(key)] = form.values.validate_json(value, strict=True)
        elif form is not None:
            found[name.decode()] = form.load(value)
        elif name == b"last_ns":
            last_ns = int(value)
        elif name != b"fields":
            raise BadSnapshot(f"unknown field {name.decode()!r}")
    found.update((name, PersistentMap(entries)) for name, entries in maps.items())
    return State(**found), last_ns


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """What two fields hold, as jobs that live and those that ended, is made out once."""
    return TypeAdapter(kind)


@cache
def _schema(kind: Any) -> Any:
    return _adapter(kind).json_schema()


class _MapForm:
    """A map of the state, entry by entry."""

    def __init__(self, values: Any) -> None:
        self._kind = values
        self.values = _adapter(values)

    def fields(self) -> Any:
        return _schema(self._kind)


class _IntForm:
    """Hexadecimal: a set of hosts is a number with as many digits as there are hosts."""

    def fields(self) -> str:
        return "hexadecimal"

    def dump(self, value: int) -> bytes:
        return _json(f"{value:x}")

    def load(self, text: bytes) -> int:
        return int(json.loads(text), 16)


class _FabricForm:
    """What the fabric was made from."""

    def fields(self) -> str:
        return "fabric"

    def dump(self, value: Any) -> bytes:
        return _json(value and value.spec)

    def load(self, text: bytes) -> Any:
        spec = json.loads(text)
        return spec and from_spec(spec)


class _NamesForm:
    """A list of names, as one value."""

    _adapter: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[str, ...])

    def fields(self) -> str:
        return "names"

    def dump(self, value: Iterable[str]) -> bytes:
        return self._adapter.dump_json(tuple(value))

    def load(self, text: bytes) -> NameList:
        return NameList(self._adapter.validate_json(text, strict=True))


class _PlainForm:
    """Any other value."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def fields(self) -> Any:
        return self._adapter.json_schema()

    def dump(self, value: Any) -> bytes:
        return self._adapter.dump_json(value)

    def load(self, text: bytes) -> Any:
        return self._adapter.validate_json(text, strict=True)


_Form = _MapForm | _IntForm | _FabricForm | _NamesForm | _PlainForm


@cache
def _forms() -> dict[str, _Form]:
    """How each field of the state is written, from its annotation."""
    hints = get_type_hints(State)
    return {field.name: _form(field.name, hints[field.name]) for field in fields(State)}


def _form(name: str, kind: Any) -> _Form:
    if name == "fabric":
        return _FabricForm()
    if kind is int:
        return _IntForm()
    if get_origin(kind) is Mapping:
        return _MapForm(get_args(kind)[1])
    if get_origin(kind) is Sequence:
        return _NamesForm()
    return _PlainForm(kind)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
