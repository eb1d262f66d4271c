"""What the uplinks of domains carry now: all of it, a share, or nothing.

A fabric says what its links were built for. `with_links` gives the same fabric with the
uplinks as they are, so that whoever asks a tier for its bandwidth reads what is left:
`Tier.uplink_bytes_per_s` is the only place. An uplink that is down, or closed to new gangs,
parts the tree: hosts on both sides of it form no gang; so do outermost domains that nothing joins.
What such sides are is `islands`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from muster.structs import replace
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.tree import masks

if TYPE_CHECKING:
    from placement.fabric.hostset import HostSet
    from placement.fabric.tree import Fabric, Floats

FULL = 1.0
DIGITS = 6  # of a share that count


def checked_share(value: float, field: str = "share") -> float:
    """Check that `value` is a number from 0 to 1, and return it. Raises: BadInput naming
    `field`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise BadInput(field, f"must be a share of the uplink from 0 to 1, not {value!r}")
    return round(float(value), DIGITS)


def uplink_of(fabric: Fabric, name: str, field: str) -> tuple[int, int]:
    """Find tier and number of the domain of this name; the outermost where several share it.

    Raises: BadInput naming `field` when no domain is called that.
    """
    uplink = _numbers(fabric.as_built).get(name)
    if uplink is not None:
        return uplink
    if name in fabric.index_by_name:
        raise BadInput(field, f"{name} is a host: an uplink has the name of its domain")
    named = " or ".join(tier.domains[0] for tier in fabric.tiers)
    like = f"; they are named like {named}" if named else ", which has no tiers"
    raise BadInput(field, f"no domain {name!r} in {fabric.name}{like}")


@lru_cache(maxsize=8)
def _numbers(fabric: Fabric) -> dict[str, tuple[int, int]]:
    numbers: dict[str, tuple[int, int]] = {}
    for depth, tier in enumerate(fabric.tiers):
        for number, name in enumerate(tier.domains):
            numbers.setdefault(name, (depth, number))
    return numbers


def with_links(
    fabric: Fabric, share_by_domain: Mapping[str, float], closed: Collection[str] = ()
) -> Fabric:
    """Return the fabric with these shares of its uplinks, in place of its own.

    `closed`: domains whose uplink no gang may newly cross, whatever it carries. Equal states of the
    links make equal fabrics. The digest stays: it names what was built.

    Raises: BadInput naming `links.NAME`.
    """
    built = fabric.as_built
    shares = {}
    for name, value in share_by_domain.items():
        at, share = uplink_of(built, name, f"links.{name}"), checked_share(value, f"links.{name}")
        if share < FULL:
            shares[at] = share
    shut = {uplink_of(built, name, f"links.{name}") for name in closed}
    if not shares and not shut:
        return built
    tiers = []
    for depth, tier in enumerate(built.tiers):
        uplink = tier.uplink_bytes_per_s.copy()
        for (level, number), share in shares.items():
            if level == depth:
                uplink[number] *= share
        tiers.append(replace(tier, uplink_bytes_per_s=uplink))
    barred = shut | {at for at, share in shares.items() if not share} | set(built.barred)
    return replace(
        built,
        tiers=tuple(tiers),
        links=tuple(sorted(shares.items())),
        barred=tuple(sorted(barred)),
        base=built,
    )


def seconds_over(sent: Floats, bytes_per_s: Floats | float) -> Floats:
    """Return how many seconds each link needs for its bytes: 0 for no bytes, infinite where it is
    down."""
    import numpy as np

    idle = np.where(sent > 0, np.inf, 0.0)
    return np.divide(sent, bytes_per_s, out=idle, where=np.asarray(bytes_per_s) > 0)


@lru_cache(maxsize=64)
def islands(fabric: Fabric) -> tuple[HostSet, ...]:
    """Split hosts into sets that reach each other over uplinks which gangs may cross; sets that are
    connected at the top come first. One where no uplink is barred."""
    rest = hostset.full(fabric.host_count)
    parts: list[HostSet] = []
    for depth, number in fabric.barred:  # from the outside: inner ones are taken out of outer
        inside = masks(fabric, depth)[number]
        parts = [part & ~inside for part in parts]
        rest &= ~inside
        parts.append(inside)
    return tuple(part for part in (rest, *parts) if part)


def barred_text(fabric: Fabric, hosts: HostSet) -> str:
    """Name the barred uplinks that a gang on `hosts` would cross: `the uplinks of z3 and z4`; ""
    for none."""
    names = [
        fabric.tiers[depth].domains[number]
        for depth, number in fabric.barred
        if hosts & (inside := masks(fabric, depth)[number]) and hosts & ~inside
    ]
    return names_text(names)


def barred_links(fabric: Fabric) -> str:
    """Name all barred uplinks: `the uplink of z3`."""
    return names_text(fabric.tiers[depth].domains[number] for depth, number in fabric.barred)


def names_text(names: Iterable[str]) -> str:
    """Name uplinks: `the uplink of z3`, `the uplinks of z3, z4`; "" for none."""
    shown = list(names)
    return f"the uplink{'s' * (len(shown) > 1)} of {', '.join(shown)}" if shown else ""
