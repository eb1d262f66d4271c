"""The storage that all gangs of a fabric share, as its file states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.structs import replace, struct
from placement.errors import BadInput, positive

_FIGURES = ("write_gb_per_s", "read_gb_per_s", "capacity_tb")
_KEYS = (*_FIGURES, "hold_jobs")


@struct(frozen=True, slots=True)
class Storage:
    """A store that gangs share: GB/s that all hosts together write and read, and TB that it holds;
    0 where not stated. `hold_jobs`: jobs wait whose datasets it cannot serve beside those of
    running gangs. `name`: by which jobs choose it; empty: it is the only one."""

    write_gb_per_s: float
    read_gb_per_s: float
    capacity_tb: float
    hold_jobs: bool = False
    name: str = ""

    @property
    def text(self) -> str:
        """The store in a sentence: `the storage`, or `store NAME`."""
        return f"store {self.name}" if self.name else "the storage"


NO_STORAGE = Storage(0.0, 0.0, 0.0)  # of a fabric whose file states none


def find_store(stores: tuple[Storage, ...], name: str, field: str) -> Storage:
    """Return the store of this name, the first one where `name` is empty, and NO_STORAGE where
    there is none then. Raises: BadInput of `field` with the names that there are."""
    if not name:
        return stores[0] if stores else NO_STORAGE
    for store in stores:
        if store.name == name:
            return store
    known = ", ".join(filter(None, (store.name for store in stores)))
    known = f"there are {known}" if known else "the fabric file names none under storage"
    raise BadInput(field, f"no store {name!r}; {known}")


def read_storage(value: Any) -> tuple[Storage, ...]:
    """Read `storage` of a fabric file: one store, or a list of named ones, of which jobs use the
    first unless they name another. Raises: BadInput with the field's path."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        return (_read_store(value, "storage"),)
    if not value:
        raise BadInput("storage", "must name at least one store")
    stores = dict[str, Storage]()
    for at, entry in enumerate(value):
        field = f"storage.{at}"
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not name:
            raise BadInput(field, "must be {name: NAME, write_gb_per_s: N}: each store of a list")
        if name in stores:
            raise BadInput(f"{field}.name", f"another store has the name {name!r}")
        figures = {key: each for key, each in entry.items() if key != "name"}
        stores[name] = replace(_read_store(figures, field), name=name)
    return tuple(stores.values())


def _read_store(value: Any, field: str) -> Storage:
    """Read what one store does. Raises: BadInput with a path below `field`."""
    if not isinstance(value, Mapping) or "write_gb_per_s" not in value:
        known = "read_gb_per_s, capacity_tb, hold_jobs"
        known += "; or a list of these, each with a name" if field == "storage" else ""
        raise BadInput(field, f"must be {{write_gb_per_s: N}}, and {known}")
    for key, number in value.items():
        if key not in _KEYS:
            raise BadInput(f"{field}.{key}", f"unknown key; known are {', '.join(_KEYS)}")
        if key in _FIGURES:
            positive(number, f"{field}.{key}")
    if not isinstance(hold_jobs := value.get("hold_jobs", False), bool):
        raise BadInput(f"{field}.hold_jobs", f"must be true or false, not {hold_jobs!r}")
    if hold_jobs and "read_gb_per_s" not in value:
        raise BadInput(f"{field}.read_gb_per_s", "is required with hold_jobs: what it reads")
    write, read, capacity = (float(value.get(key, 0)) for key in _FIGURES)
    return Storage(write, read, capacity, hold_jobs)
