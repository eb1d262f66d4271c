"""Hosts by the numbers of another fabric: how what is kept by index follows a change of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Renumbering:
    """`numbers[i]`: the new number of what was host i; None: it is gone. `joined`: new numbers of
    hosts that were not there."""

    numbers: tuple[int | None, ...]
    joined: HostSet

    @staticmethod
    def between(before: Fabric, after: Fabric, renames: Mapping[str, str]) -> Renumbering:
        """`renames`: new names by old ones."""
        index = after.index_by_name
        numbers = tuple(index.get(renames.get(name, name)) for name in before.hosts)
        kept = hostset.of(number for number in numbers if number is not None)
        return Renumbering(numbers, hostset.full(after.host_count) & ~kept)

    @property
    def is_plain(self) -> bool:
        """Whether every host keeps its number."""
        return all(number == host for host, number in enumerate(self.numbers))

    def of(self, host: int) -> int | None:
        return self.numbers[host]

    def hosts(self, hosts: Iterable[int]) -> tuple[int, ...]:
        """In order, without those that are gone."""
        renumbered = (self.numbers[host] for host in hosts)
        return tuple(number for number in renumbered if number is not None)

    def set(self, hosts: HostSet) -> HostSet:
        return hostset.of(self.hosts(hostset.members(hosts))) if hosts else 0

    def keys(self, entries: Mapping[int, Entry]) -> dict[int, Entry]:
        """Entries by host, in the order of the new numbers."""
        renumbered = ((self.numbers[host], entry) for host, entry in entries.items())
        kept = {number: entry for number, entry in renumbered if number is not None}
        return dict(sorted(kept.items()))
