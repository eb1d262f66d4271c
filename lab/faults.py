"""Faults of a running lab: what is cut, slow or lossy, and the commands that make it so.

All faults together are one nftables table, written anew with each change, and one rate for each
direction of a slow link; what is not listed is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lab.plan import LEAST_BITS_PER_S, LabPlan, classes
from muster.structs import replace, struct
from placement import BadInput

MILLION = 1_000_000


class Direction(StrEnum):
    """A direction of a link: towards the top, away from it, or both."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


@struct(frozen=True, slots=True)
class Fault:
    """A fault of a link, or between two sides of the lab.

    `name`: a host or a domain: its link. `other`: nothing of `name` reaches these, and nothing of
    these reaches `name` unless the direction is UP; "" for a fault of the link. `loss`: a share of
    packets, 1 for a cut. `bits_per_s`: what is left of its rate, 0 for all.
    """

    name: str
    other: str = ""
    direction: Direction = Direction.BOTH
    loss: float = 0.0
    bits_per_s: float = 0.0

    def __str__(self) -> str:
        way = "" if self.direction is Direction.BOTH else f", {self.direction} only"
        if self.other:
            arrow = "to" if self.direction is Direction.UP else "and"
            return f"cut: {self.name} {arrow} {self.other}"
        if self.bits_per_s:
            return f"slow: {self.name} at {self.bits_per_s / 1e6:.3g} Mbit/s{way}"
        kind = "cut" if self.loss >= 1 else f"loses {self.loss:.3g} of packets"
        return f"{kind}: {self.name}{way}"


def check_fault(plan: LabPlan, fault: Fault) -> None:
    """Refuse a fault with names that the lab does not have, or with numbers out of range. Raises:
    BadInput."""
    if fault.other:
        sides = [set(plan.addresses(name)) for name in (fault.name, fault.other)]
        if sides[0] & sides[1]:
            raise BadInput("from", f"{fault.name} and {fault.other} have hosts in common")
        return
    link = plan.link(fault.name)
    if not 0 <= fault.loss <= 1:
        raise BadInput("share", f"must be a share of packets from 0 to 1, not {fault.loss:g}")
    if fault.bits_per_s and not LEAST_BITS_PER_S / 10 <= fault.bits_per_s <= link.bits_per_s:
        raise BadInput(
            "rate",
            f"must be 0.1 to {link.bits_per_s / 1e6:.3g} Mbit/s, the rate of {link.name},"
            f" not {fault.bits_per_s / 1e6:.3g}",
        )


def add_fault(faults: Sequence[Fault], new: Fault) -> tuple[Fault, ...]:
    """Return the faults with one more; it replaces one of the same kind and direction."""

    def is_same(old: Fault) -> bool:
        is_like = bool(old.bits_per_s) == bool(new.bits_per_s)
        return is_like and replace(old, loss=new.loss, bits_per_s=new.bits_per_s) == new

    return (*(fault for fault in faults if not is_same(fault)), new)


def heal(faults: Sequence[Fault], name: str = "") -> tuple[Fault, ...]:
    """Return the faults that are left when those of a host or domain, or all, are healed."""
    return tuple(fault for fault in faults if name and name not in (fault.name, fault.other))


def nft_table(plan: LabPlan, faults: Sequence[Fault]) -> str:
    """Return the nft script that makes the cuts and losses."""
    rules = []
    for fault in faults:
        if fault.other:
            ours, theirs = plan.addresses(fault.name), plan.addresses(fault.other)
            rules.append(_between(ours, theirs))
            if fault.direction is not Direction.UP:
                rules.append(_between(theirs, ours))
        elif fault.loss:
            port = plan.link(fault.name).port
            some = f"numgen random mod {MILLION} < {round(fault.loss * MILLION)} "
            some = "" if fault.loss >= 1 else some
            if fault.direction is not Direction.DOWN:
                rules.append(f'iifname "{port}" {some}drop')
            if fault.direction is not Direction.UP:
                rules.append(f'oifname "{port}" {some}drop')
    body = "\n".join(rules)
    chain = "type filter hook forward priority 0; policy accept;"
    return (
        "table bridge lab\ndelete table bridge lab\n"
        f"table bridge lab {{\nchain faults {{\n{chain}\n{body}\n}}\n}}\n"
    )


def _between(sources: Sequence[str], targets: Sequence[str]) -> str:
    return f"ip saddr {{ {', '.join(sources)} }} ip daddr {{ {', '.join(targets)} }} drop"


def rate_lines(
    plan: LabPlan, name: str, faults: Sequence[Fault]
) -> tuple[str, list[str], list[str]]:
    """Return how a link gets its rate: the namespace of its lower end, the lines for `tc` there
    (up), and those in the keeper's namespace (down)."""
    link = plan.link(name)
    up = down = link.bits_per_s
    for fault in faults:
        if fault.name == name and fault.bits_per_s:
            up = fault.bits_per_s if fault.direction is not Direction.DOWN else up
            down = fault.bits_per_s if fault.direction is not Direction.UP else down
    return link.node, classes(link.lower, up), classes(link.port, down)
