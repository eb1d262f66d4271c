"""The storage that all gangs of a fabric share, as its file states it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any, TypeAlias

from muster.structs import replace, struct
from placement.errors import BadInput, positive, positive_integer, refuse_unknown_keys

_FIGURES = ("write_gb_per_s", "read_gb_per_s", "capacity_tb")
_KEYS = (*_FIGURES, "hold_jobs", "by_tier", "readers")
_PATH_KEYS = _FIGURES[:2]
_READER_KEYS = ("hosts", "gb_per_s")

HostParts: TypeAlias = tuple[tuple[str, str, float], ...]
"""The parts of a gang's hosts that are in domains: (tier, domain, part of them)."""
Limits: TypeAlias = dict[str, tuple[float, float]]
"""By its text, the part of a gang's bytes that each limit counts, and its GB/s."""


@struct(frozen=True, slots=True)
class StoragePath:
    """The way from a domain of `tier` to a store: GB/s that the hosts of each such domain together
    write and read; 0: as much as the store does."""

    tier: str
    write_gb_per_s: float = 0.0
    read_gb_per_s: float = 0.0


@struct(frozen=True, slots=True)
class Readers:
    """Hosts of the frontend network that read datasets and prepare them for the gangs, each
    `gb_per_s` of what is stored."""

    hosts: int
    gb_per_s: float


@struct(frozen=True, slots=True)
class Storage:
    """A store that gangs share: GB/s that all hosts together write and read, and TB that it holds;
    0 where not stated. `hold_jobs`: jobs wait whose datasets it cannot serve beside those of
    running gangs. `name`: by which jobs choose it; empty: it is the only one. `paths`: limits of
    the domains of a tier. `readers`: that all datasets pass, None: hosts read them themselves."""

    write_gb_per_s: float
    read_gb_per_s: float
    capacity_tb: float
    hold_jobs: bool = False
    name: str = ""
    paths: tuple[StoragePath, ...] = ()
    readers: Readers | None = None

    @property
    def text(self) -> str:
        """The store in a sentence: `the storage`, or `store NAME`."""
        return f"store {self.name}" if self.name else "the storage"

    @property
    def dataset_limit(self) -> tuple[str, float]:
        """The limit of all datasets together: its text and GB/s; infinite where none is stated."""
        limits = {name: rate for name, (_, rate) in self.dataset_limits(()).items()}
        return min(limits.items(), key=lambda limit: limit[1], default=(self.text, inf))

    def dataset_limits(self, parts: HostParts) -> Limits:
        """Return what limits the reads of datasets by a gang that has these parts of its hosts."""
        limits = self.read_limits(parts)
        if self.readers is not None:
            text = f"the pool of {self.readers.hosts:,} readers of {self.text}"
            limits[text] = 1.0, self.readers.hosts * self.readers.gb_per_s
        return limits

    def read_limits(self, parts: HostParts) -> Limits:
        """Return what limits the reads of a gang that has these parts of its hosts."""
        by_tier = {path.tier: path.read_gb_per_s for path in self.paths}
        return self._limits(self.read_gb_per_s, by_tier, parts)

    def write_limits(self, parts: HostParts) -> Limits:
        """Return what limits the writes of a gang that has these parts of its hosts."""
        by_tier = {path.tier: path.write_gb_per_s for path in self.paths}
        return self._limits(self.write_gb_per_s, by_tier, parts)

    def _limits(self, whole: float, by_tier: Mapping[str, float], parts: HostParts) -> Limits:
        limits = {self.text: (1.0, whole)}
        for tier, domain, part in parts:
            limits[f"the path of {tier} {domain} to {self.text}"] = part, by_tier.get(tier, 0.0)
        return {text: limit for text, limit in limits.items() if limit[1]}


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


def read_storage(value: Any, tiers: Collection[str]) -> tuple[Storage, ...]:
    """Read `storage` of a fabric file: one store, or a list of named ones, of which jobs use the
    first unless they name another. `tiers`: above the hosts. Raises: BadInput with the field's
    path."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        return (_read_store(value, "storage", tiers),)
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
        stores[name] = replace(_read_store(figures, field, tiers), name=name)
    return tuple(stores.values())


def _read_store(value: Any, field: str, tiers: Collection[str]) -> Storage:
    """Read what one store does. Raises: BadInput with a path below `field`."""
    if not isinstance(value, Mapping) or "write_gb_per_s" not in value:
        known = ", ".join(key for key in _KEYS if key != "write_gb_per_s")
        known += "; or a list of these, each with a name" if field == "storage" else ""
        raise BadInput(field, f"must be {{write_gb_per_s: N}}, and {known}")
    refuse_unknown_keys(value, field, _KEYS)
    write, read, capacity = (_rate(value, field, key) for key in _FIGURES)
    paths = _read_paths(value.get("by_tier", {}), f"{field}.by_tier", tiers)
    readers = _read_readers(value.get("readers"), f"{field}.readers")
    if not isinstance(hold_jobs := value.get("hold_jobs", False), bool):
        raise BadInput(f"{field}.hold_jobs", f"must be true or false, not {hold_jobs!r}")
    if hold_jobs and not (read or readers or any(path.read_gb_per_s for path in paths)):
        raise BadInput(f"{field}.read_gb_per_s", "is required with hold_jobs: what it reads")
    return Storage(write, read, capacity, hold_jobs, "", paths, readers)


def _read_paths(value: Any, field: str, tiers: Collection[str]) -> tuple[StoragePath, ...]:
    """Read the limits of the domains of tiers. Raises: BadInput with a path below `field`."""
    known = ", ".join(tiers) or "none above the hosts"
    if not isinstance(value, Mapping):
        raise BadInput(field, f"must map tiers to {{read_gb_per_s: N}}; there are {known}")
    paths = []
    for tier, rates in value.items():
        at = f"{field}.{tier}"
        if tier not in tiers:
            raise BadInput(at, f"no tier {tier!r}; there are {known}")
        if not isinstance(rates, Mapping) or not rates:
            raise BadInput(at, "must be {read_gb_per_s: N, write_gb_per_s: N}, or one of them")
        refuse_unknown_keys(rates, at, _PATH_KEYS)
        paths.append(StoragePath(tier, *(_rate(rates, at, key) for key in _PATH_KEYS)))
    return tuple(paths)


def _read_readers(value: Any, field: str) -> Readers | None:
    """Read the hosts that read datasets. Raises: BadInput with a path below `field`."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(key in value for key in _READER_KEYS):
        raise BadInput(field, "must be {hosts: N, gb_per_s: N}: how many, and what each reads")
    refuse_unknown_keys(value, field, _READER_KEYS)
    hosts = positive_integer(value["hosts"], f"{field}.hosts")
    return Readers(hosts, _rate(value, field, "gb_per_s"))


def _rate(value: Mapping[str, Any], field: str, key: str) -> float:
    """Return the figure of this key, 0 where it is not given. Raises: BadInput."""
    return positive(value[key], f"{field}.{key}") if key in value else 0.0
