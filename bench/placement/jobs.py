"""Gangs of every shape: the kinds of job of the placement benchmark."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd, prod

from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Collective, Request

GPUS = 8
PP = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 30, 32)
RATIOS = ((1, 20), (1, 9), (3, 10), (1, 1), (10, 3), (7, 1), (50, 3), (50, 1))  # dp : pp
KINDS = ("small", "dense", "hierarchical", "context", "expert", "wide-tp", "ragged")


@dataclass(slots=True)
class _Shape:
    """Sizes of a job but for DP, and patterns."""

    sizes: dict[str, int]
    order: str
    hierarchical: tuple[str, ...] = ()


def request(kind: str, hosts: int, rng: random.Random) -> Request:
    """Draw a job of `kind` on about `hosts` hosts, never more."""
    shape = _SHAPES[kind](hosts, rng)
    dp = _dp(shape.sizes, hosts)
    while dp == 0:  # too wide for so few hosts: halve what is widest but TP
        axis = max((a for a in shape.sizes if a != "tp"), key=lambda a: shape.sizes[a])
        if shape.sizes[axis] == 1:
            axis = "tp"
        shape.sizes[axis] = max(1, shape.sizes[axis] // 2)
        dp = _dp(shape.sizes, hosts)
    sizes = {**shape.sizes, "dp": dp}
    collectives = tuple((axis, Collective.HIERARCHICAL) for axis in shape.hierarchical)
    return Request(
        Parallelism(**sizes, order=shape.order), _traffic(sizes, rng), collectives, spares=NO_SPARES
    )


def _dp(sizes: dict[str, int], hosts: int) -> int:
    """The largest DP whose ranks fit, in whole hosts."""
    replica = prod(sizes.values())
    step = GPUS // gcd(GPUS, replica)
    return hosts * GPUS // replica // step * step


def _traffic(sizes: dict[str, int], rng: random.Random) -> tuple[tuple[str, int], ...]:
    """Bytes per edge: TP > CP, EP > DP and PP; round ratios, or any."""
    if rng.random() < 0.5:
        dp, pp = (100 * w for w in rng.choice(RATIOS))
    else:
        pp = rng.randrange(10_000, 200_000)
        dp = max(1, round(pp * 2 ** rng.uniform(-4.32, 5.64)))
    most = max(dp, pp)
    bytes_by_axis = {"tp": 50 * most, "dp": dp, "pp": pp}
    bytes_by_axis["cp"] = most * rng.choice((1, 2, 5))
    bytes_by_axis["ep"] = max(1, most * rng.choice((1, 4)) // sizes.get("ep", 1))
    return tuple((a, bytes_by_axis[a]) for a in ("tp", "cp", "ep", "pp", "dp") if a in sizes)


def _dense(hosts: int, rng: random.Random) -> _Shape:
    pp = _fitting(PP, hosts, rng)
    tp = rng.choice((8, 8, 8, 4, 2, 1)) if hosts <= 1_000 else 8
    return _Shape({"tp": tp, "pp": pp}, rng.choice(("tp-pp-dp", "tp-dp-pp")))


def _small(hosts: int, rng: random.Random) -> _Shape:
    return rng.choice((_dense, _dense, _hierarchical, _context, _expert, _ragged))(hosts, rng)


def _hierarchical(hosts: int, rng: random.Random) -> _Shape:
    shape = _dense(hosts, rng)
    shape.hierarchical = ("dp",)
    return shape


def _context(hosts: int, rng: random.Random) -> _Shape:
    cp = _fitting((2, 3, 4, 8, 16), hosts, rng)
    pp = _fitting(PP, hosts // cp, rng)
    order = rng.choice(("tp-cp-pp-dp", "tp-cp-dp-pp"))
    patterns = rng.choice(((), (), ("dp",), ("cp",), ("cp", "dp")))
    return _Shape({"tp": rng.choice((8, 8, 4)), "cp": cp, "pp": pp}, order, patterns)


def _expert(hosts: int, rng: random.Random) -> _Shape:
    tp = rng.choice((1, 2, 4, 8))
    ep = _fitting((4, 8, 16, 32, 64), hosts * GPUS // tp, rng)
    pp = _fitting((1, 2, 4, 8, 16), hosts * GPUS // (tp * ep), rng)
    order = rng.choice(("tp-ep-dp-pp", "tp-ep-pp-dp"))
    return _Shape({"tp": tp, "ep": ep, "pp": pp}, order, rng.choice(((), ("dp",))))


def _wide_tp(hosts: int, rng: random.Random) -> _Shape:
    cp = rng.choice((1, 1, 2, 4))
    pp = _fitting(PP, hosts // (2 * cp), rng)
    order = rng.choice(("tp-cp-pp-dp", "tp-cp-dp-pp"))
    return _Shape({"tp": 16, "cp": cp, "pp": pp}, order, rng.choice(((), ("dp",))))


def _ragged(hosts: int, rng: random.Random) -> _Shape:
    """Sizes that share no divisor with the GPUs of a host."""
    tp = rng.choice((1, 2, 4))
    cp = rng.choice((1, 3, 5))
    pp = _fitting((3, 5, 6, 7, 9, 11, 13), hosts // cp, rng)
    return _Shape({"tp": tp, "cp": cp, "pp": pp}, rng.choice(("tp-cp-pp-dp", "tp-cp-dp-pp")))


def _fitting(sizes: tuple[int, ...], most: int, rng: random.Random) -> int:
    return rng.choice([n for n in sizes if n <= most] or [1])


_SHAPES: dict[str, Callable[[int, random.Random], _Shape]] = {
    "small": _small,
    "dense": _dense,
    "hierarchical": _hierarchical,
    "context": _context,
    "expert": _expert,
    "wide-tp": _wide_tp,
    "ragged": _ragged,
}
