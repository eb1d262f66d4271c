"""Values as JSON and back, by their annotations.

int                  itself; one of more than 63 bits, such as a set of hosts, as "0x..."
str, float, bool     themselves; floats to the last bit
enum                 its value
tuple, list, set     a list, that of a set sorted
mapping              a list of [key, value], in its order
array                a list of floats
dataclass            an object of its fields; in a union also its "type"
Kept                 an object of what it keeps (kept.py)
"""

from __future__ import annotations

import types
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    Floats = array[float]
else:  # a class that takes no parameters before Python 3.12
    Floats = array

MOST_BITS = 63


@dataclass(frozen=True, slots=True)
class Form:
    """How a type is written and read. `told`: what it looks like, for a digest of it.

    `load` raises KeyError, TypeError or ValueError on what `dump` did not make.
    """

    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]
    told: str


class Kept:
    """Keeps whatever its class and its bases annotate; other attributes are its wiring.

    A class that is restored by itself, as an attribute of another, has no wiring.
    """

    def kept(self) -> dict[str, Any]:
        """What it keeps, as JSON has it."""
        return {name: form.dump(getattr(self, name)) for name, form in self._forms().items()}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on where `kept` was taken. Raises: KeyError, TypeError, ValueError."""
        for name, form in self._forms().items():
            mine = getattr(self, name, None)
            if isinstance(mine, Kept) and kept[name] is not None:
                mine.restore(kept[name])
            else:
                setattr(self, name, form.load(kept[name]))

    def _forms(self) -> dict[str, Form]:
        mine: Any = type(self)  # mypy takes classes with no __hash__ of their own for unhashable
        return _kept(mine)


@cache
def _kept(kind: Any) -> dict[str, Form]:
    return {name: form(hint) for name, hint in get_type_hints(kind).items()}


def told(kind: Any) -> str:
    """What objects of this class keep, for a digest."""
    return ", ".join(f"{name}: {each.told}" for name, each in _kept(kind).items())


@cache
def form(kind: Any) -> Form:
    """Raises: TypeError on a type that has none."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(inner)
    if origin is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
        return _row([form(each) for each in inner])
    if origin in _LISTS:
        make, put = _LISTS[origin]
        return _list(form(inner[0]), make, put)
    if origin in (dict, Counter, Mapping):
        value = form(int if origin is Counter else inner[1])
        return _pairs(form(inner[0]), value, Counter if origin is Counter else dict)
    if kind is None or isinstance(kind, type):
        return _named(kind or type(None))
    raise TypeError(f"{kind!r} has no plain form")


def _named(kind: type) -> Form:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if issubclass(kind, Kept):
        return Form(kind.kept, lambda plain: _revived(kind, plain), f"{{{told(kind)}}}")
    if issubclass(kind, Enum):
        return Form(lambda value: value.value, kind, f"{kind.__name__} {[e.value for e in kind]}")
    if is_dataclass(kind):
        return _dataclass(kind)
    raise TypeError(f"{kind!r} has no plain form")


def _revived(kind: type[Kept], plain: Any) -> Kept:
    made = kind.__new__(kind)
    made.restore(plain)
    return made


def _same(*kinds: type) -> Form:
    def load(plain: Any) -> Any:
        if type(plain) not in kinds:
            raise TypeError(f"{plain!r} is no {kinds[0].__name__}")
        return plain

    return Form(lambda value: value, load, kinds[0].__name__)


def _int_load(plain: Any) -> int:
    if isinstance(plain, str) and plain.startswith(("0x", "-0x")):
        return int(plain, 16)
    if type(plain) is not int:
        raise TypeError(f"{plain!r} is no int")
    return plain


def _int_dump(value: int) -> int | str:
    return value if value.bit_length() <= MOST_BITS else hex(value)


_SIMPLE: dict[type, Form] = {
    int: Form(_int_dump, _int_load, "int"),
    str: _same(str),
    bool: _same(bool),
    float: _same(float, int),  # a sum of nothing is a whole 0
    type(None): _same(type(None)),
    array: Form(list, lambda plain: array("d", plain), "array"),
}
_LISTS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (tuple, list),
    Sequence: (tuple, list),
    list: (list, list),
    set: (set, sorted),
}


def _list(each: Form, make: Callable[[Any], Any], put: Callable[[Any], Any]) -> Form:
    return Form(
        lambda values: [each.dump(value) for value in put(values)],
        lambda plain: make([each.load(value) for value in plain]),
        f"[{each.told}]",
    )


def _row(forms: Sequence[Form]) -> Form:
    return Form(
        lambda values: [f.dump(value) for f, value in zip(forms, values, strict=True)],
        lambda plain: tuple(f.load(value) for f, value in zip(forms, plain, strict=True)),
        f"({', '.join(f.told for f in forms)})",
    )


def _pairs(key: Form, value: Form, make: type) -> Form:
    return Form(
        lambda values: [[key.dump(k), value.dump(v)] for k, v in values.items()],
        lambda plain: make({key.load(k): value.load(v) for k, v in plain}),
        f"{{{key.told}: {value.told}}}",
    )


def _dataclass(kind: Any) -> Form:
    hints = get_type_hints(kind)
    forms = {field.name: form(hints[field.name]) for field in fields(kind)}
    return Form(
        lambda value: {name: f.dump(getattr(value, name)) for name, f in forms.items()},
        lambda plain: kind(**{name: f.load(plain[name]) for name, f in forms.items()}),
        f"{kind.__name__}({', '.join(f'{name}: {f.told}' for name, f in forms.items())})",
    )


def _union(kinds: Sequence[Any]) -> Form:
    """None, or one other kind, or one of several dataclasses by name."""
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        only = form(others[0])
        return Form(
            lambda value: None if value is None else only.dump(value),
            lambda plain: None if plain is None else only.load(plain),
            f"{only.told}?",
        )
    forms = {kind.__name__: _dataclass(kind) for kind in others}

    def dump(value: Any) -> Any:
        name = type(value).__name__
        return None if value is None else {"type": name, **forms[name].dump(value)}

    def load(plain: Any) -> Any:
        return None if plain is None else forms[plain["type"]].load(plain)

    return Form(dump, load, " | ".join(f.told for f in forms.values()))
