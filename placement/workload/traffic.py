"""Who talks to whom along each axis, and how many bytes per training step.

An axis is a set of equal groups of ranks; a *pattern* says which ranks of a group
exchange bytes, and `edge_bytes` how many on one edge (docs/traffic.md). An
explicit value always wins; the rest is derived from the model (volumes.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from muster.structs import replace, struct
from placement.errors import BadInput
from placement.workload.parallelism import AXES
from placement.workload.request import Collective, Request
from placement.workload.roles import ranks_of_roles
from placement.workload.training import ContextParallel, DataParallel
from placement.workload.trees import ranks_of_node
from placement.workload.volumes import REPLICATE, edge_volumes, is_all_to_all

if TYPE_CHECKING:
    from placement.fabric.tree import Ints


FULL_PRICE = 1_000  # of a byte, in the cut


class Pattern(StrEnum):
    """Traffic in a group of n ranks.

    RING: i -> (i+1) mod n. CHAIN: i -> i+1, and `wrap_bytes` from the last to the first.
    HIERARCHICAL: w (Z-1) n/(n-1) over Z domains. ALL_TO_ALL: every ordered pair. PAIRS: from each
    rank of a role to each of another, which are one group. TREE: as `tree_edges` lists them.
    """

    RING = "ring"
    CHAIN = "chain"
    HIERARCHICAL = "hierarchical"
    ALL_TO_ALL = "all_to_all"
    PAIRS = "pairs"
    TREE = "tree"


@struct(frozen=True, slots=True)
class AxisTraffic:
    """The traffic of one axis wider than 1: its groups, its pattern and its bytes.

    A group is `size` ranks at distance `stride`. An axis whose collective has rounds stands as one
    for each distance (`dp/1`, `dp/2`, ..). With a shard group smaller than dp, dp
    stands as two: `dp` inside a shard group, `dp_replicate` across them. In a gang of roles, an
    axis is that of the `ranks` from `first` on; 0: of all. With PAIRS these send to the other
    ranks of the group, from `to` on. `node`: ranks of a group that lie on one host, of TREE.
    """

    axis: str
    size: int
    stride: int
    pattern: Pattern
    edge_bytes: int
    wrap_bytes: int = 0
    first: int = 0
    ranks: int = 0
    to: int = 0
    node: int = 1

    @property
    def reversed(self) -> AxisTraffic:
        """Return the traffic with receivers as senders; other patterns go both ways."""
        if self.pattern is not Pattern.PAIRS:
            return self
        return replace(self, first=self.to, ranks=self.size - self.ranks, to=self.first)

    @property
    def tree_part(self) -> Fraction:
        """Return the bytes of one part of a tree's vector, of which the edge of a ring carries
        2 (n-1)/n."""
        return Fraction(self.edge_bytes * self.size, 4 * self.node * (self.size - 1))


@lru_cache(maxsize=4096)
def axis_traffic(request: Request, per_host: int = 1) -> tuple[AxisTraffic, ...]:
    """Return the traffic of each axis wider than 1, fastest-varying first. `per_host`: ranks of a
    host, by which trees know their nodes.

    Raises: BadInput on negative bytes, unknown axes, a collective that an axis cannot use, a model
    without a batch, or training that does not suit the axes.
    """
    if request.roles:
        return tuple(_role_traffic(request, per_host))
    edge_bytes = {**edge_volumes(request), **_explicit(request)}
    collectives, prices = _collectives(request), dict(request.prices)
    axes = []
    for name, axis, size, stride in _parts(request):
        if size == 1:
            continue
        pattern = _pattern(request, axis, collectives)
        sent = edge_bytes.get(name, 0) * prices.get(name, FULL_PRICE) // FULL_PRICE
        node = ranks_of_node(size, stride, per_host) if pattern is Pattern.TREE else 1
        wrap = _wrap(request, axis, sent)
        whole = AxisTraffic(name, size, stride, pattern, sent, wrap, node=node)
        used = collectives.get(axis, Collective.RING)
        axes += _rounds(whole, used) if used.is_in_rounds else [whole]
    return tuple(axes)


def _rounds(whole: AxisTraffic, used: Collective) -> list[AxisTraffic]:
    """Return an axis as pairs of ranks that are 1, 2, 4 .. apart, each as a ring of two, and a ring
    over what has no factor 2. `dp/4` has those four groups of ranks apart.

    Each round halves what is left to send, and those near by or far away come first.
    """
    left = Fraction(whole.edge_bytes * whole.size, 2 * (whole.size - 1))
    rounds = []
    for distance, size in rounds_of(used, whole.size):
        each = replace(whole, axis=f"{whole.axis}/{distance}", size=size)
        sent = int(left * 2 * (size - 1) / size)
        rounds.append(replace(each, stride=whole.stride * distance, edge_bytes=sent))
        left /= size
    return sorted(rounds, key=lambda each: each.stride)


def is_summed_whole(request: Request, axis: str) -> bool:
    """Return whether an axis sums whole vectors, and does not gather and scatter them apart."""
    training = request.training
    whole = {
        "tp": not training.sequence_parallel,
        "dp": training.data_parallel is DataParallel.DDP,
        REPLICATE: True,
    }
    return whole.get(axis, False)


def check_whole_sums(request: Request, axis: str, needing: str) -> None:
    """Refuse what sums whole vectors where the model's are gathered and scattered along an axis.

    `needing`: what sums them, for the message. Raises: BadInput.
    """
    if request.model and not is_summed_whole(request, axis):
        hint = "; with training.data_parallel: ddp it sums" if axis == "dp" else ""
        message = f"{needing}, and {axis} gathers and scatters them{hint}"
        raise BadInput(f"collectives.{axis}", message)


def without_trees(request: Request, used: Collective = Collective.HIERARCHICAL) -> Request:
    """Return the request with hierarchies, or another collective, in place of trees. No layout
    sends less over its trees than over hierarchies: over Z domains each of the two has Z - 1 edges
    at least, which carry half of the vector there and back."""
    instead = {Collective.TREE: used}
    changed = tuple((axis, instead.get(each, each)) for axis, each in request.collectives)
    return replace(request, collectives=changed)


def rounds_of(used: Collective, size: int) -> list[tuple[int, int]]:
    """List the distance and the ranks of each round's rings, the first round first: 2 ranks, and
    the farthest what has no factor 2."""
    pairs = size & -size
    rounds = [(1 << bit, 2) for bit in range(pairs.bit_length() - 1)]
    if pairs < size:
        rounds.append((pairs, size // pairs))
    return rounds[::-1] if used is Collective.HALVING_DOUBLING_FAR else rounds


def groups_of(by_rank: Ints, traffic: AxisTraffic) -> Ints:
    """Arrange a value of each rank by groups. Shape: (groups, ranks of a group)."""
    first, ranks = traffic.first, traffic.ranks
    if traffic.pattern is Pattern.PAIRS:
        to = slice(traffic.to, traffic.to + traffic.size - ranks)
        import numpy as np

        return np.concatenate([by_rank[first : first + ranks], by_rank[to]])[None, :]
    if ranks:
        by_rank = by_rank[first : first + ranks]
    apart = by_rank.reshape(-1, traffic.size, traffic.stride)
    return apart.swapaxes(1, 2).reshape(-1, traffic.size)


def _role_traffic(request: Request, per_host: int) -> Iterator[AxisTraffic]:
    """The axes of each role, by its name, then what it sends to others."""
    prices = dict(request.prices)
    ranks = dict(zip([role.name for role in request.roles], ranks_of_roles(request), strict=True))
    for number, role in enumerate(request.roles):
        own = ranks[role.name]
        try:
            inside = axis_traffic(role.request, per_host)
        except BadInput as error:
            raise BadInput(f"roles.{number}.{error.field}", error.message) from None
        for axis in inside:
            named = f"{role.name}.{axis.axis}"
            price = prices.get(named, FULL_PRICE)
            edge, wrap = (n * price // FULL_PRICE for n in (axis.edge_bytes, axis.wrap_bytes))
            placed = replace(axis, axis=named, first=own.start, ranks=len(own))
            yield replace(placed, edge_bytes=edge, wrap_bytes=wrap)
        for name, sent in role.sends:
            to, size = ranks[name], len(own) + len(ranks[name])
            each = -(-sent // (len(own) * len(to)))
            named = f"{role.name}-{name}"
            each = each * prices.get(named, FULL_PRICE) // FULL_PRICE
            yield AxisTraffic(named, size, 1, Pattern.PAIRS, each, 0, own.start, len(own), to.start)


def _parts(request: Request) -> list[tuple[str, str, int, int]]:
    """(name, axis, size, stride): the axes, dp in two when it holds several shard groups."""
    p = request.parallelism
    parts = []
    for axis in p.axes:
        size, stride = p.size(axis), p.stride(axis)
        is_split = axis == "dp" and request.model and axis not in dict(request.traffic)
        inner = request.training.shards(size) if is_split else size
        parts.append((axis, axis, inner, stride))
        if inner < size:
            parts.append((REPLICATE, axis, size // inner, stride * inner))
    return parts


def _pattern(request: Request, axis: str, collectives: dict[str, Collective]) -> Pattern:
    if axis == "pp":
        return Pattern.CHAIN
    if is_all_to_all(axis, request.training):
        return Pattern.ALL_TO_ALL
    used = collectives.get(axis, Collective.RING)
    return Pattern.RING if used.is_in_rounds else Pattern(used.value)


def _wrap(request: Request, axis: str, edge_bytes: int) -> int:
    """Interleaved stages go round: all but one of the chunks return to the first rank."""
    chunks = request.batch.virtual_stages if request.batch else 1
    return edge_bytes * (chunks - 1) // chunks if axis == "pp" else 0


def _explicit(request: Request) -> dict[str, int]:
    for axis, edge_bytes in request.traffic:
        _traffic_cache(axis, "traffic")
        if edge_bytes < 0:
            raise BadInput(f"traffic.{axis}", f"must not be negative, is {edge_bytes}")
    return dict(request.traffic)


def _collectives(request: Request) -> dict[str, Collective]:
    for axis, collective in request.collectives:
        _traffic_cache(axis, "collectives")
        if collective is Collective.RING:
            continue
        if axis == "pp" or is_all_to_all(axis, request.training):
            fixed = "a chain" if axis == "pp" else "all-to-all"
            raise BadInput(f"collectives.{axis}", f"{axis} is {fixed} and takes no collective")
        if collective is Collective.TREE:
            check_whole_sums(request, axis, "a tree sums whole vectors")
    return dict(request.collectives)


def _traffic_cache(axis: str, field: str) -> None:
    if axis not in AXES:
        raise BadInput(f"{field}.{axis}", f"unknown axis; axes are {', '.join(AXES)}")


def has_choice(request: Request, traffic: AxisTraffic) -> bool:
    """Whether an axis may use another collective than the ring that it sends in. Ring attention
    passes blocks on as it computes: that ring is the algorithm."""
    is_ring_attention = (
        traffic.axis == "cp" and request.training.context_parallel is ContextParallel.RING
    )
    is_ring = traffic.pattern is Pattern.RING
    return is_ring and bool(traffic.edge_bytes) and not is_ring_attention
