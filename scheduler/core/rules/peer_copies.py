"""Which hosts keep copies of a gang's state in memory, and what they outlive.

Each block's state is copied to `peers` other blocks of the gang. A copy must not be lost
with the original, so it lies in another rack (and behind another power feed, where the
fabric labels hosts with `power`); and not in a TP or PP group of the original, for a
fault that takes a group takes both: with FSDP that is another replica.

Blocks that stand at the same place of their replicas are a class; no two of them share a
TP or PP group. A class is put in the order of feeds and racks, and the copies of the i-th
of n go to the (i + j n / (peers + 1))-th, j = 1 .. peers. Two that are n / (peers + 1)
apart in that order lie in one rack only when it holds more of the class than that, and
then no way to copy avoids it. Where peers + 1 divides n this is the group placement of
Gemini (Wang et al., SOSP 2023), else its ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import comb, inf

from muster.structs import struct
from placement import BadInput
from placement.fabric.constraints import with_gang_view
from placement.fabric.labels import POWER
from placement.fabric.tree import Fabric, Uplink
from placement.workload.request import Request
from scheduler.core.policies.job_terms import Holders
from scheduler.core.policies.storage_use import CheckpointSizes


def refuse_without_peers(request: Request, gpus_per_host: int, peers: int) -> None:
    """Refuse copies that the gang has too few replicas for. Raises: BadInput."""
    blocks = request.hosts_needed(gpus_per_host)
    groups = _groups(request, gpus_per_host, blocks)
    fewest = min((len(members) for members in _classes(request, gpus_per_host, blocks)), default=0)
    if fewest <= peers and any(
        sum(not groups[b] & other for other in groups) < peers for b in range(blocks)
    ):
        raise BadInput(
            "checkpoint.peers",
            f"a copy lies in no TP or PP group of the original: {peers} of each block need"
            f" {peers + 1} replicas on hosts of their own",
        )


@with_gang_view
def choose_holders(fabric: Fabric, request: Request, hosts: Sequence[int], peers: int) -> Holders:
    """Return for each block the blocks that hold its copies, the best first.

    Deterministic. Cost: O(ranks), 30 ms for 16,384.
    """
    holders: list[tuple[int, ...]] = [()] * len(hosts)
    for members in _classes(request, fabric.gpus_per_host, len(hosts)):
        ordered = sorted(members, key=lambda b: (_feed(fabric, hosts[b]) or "", hosts[b]))
        apart = len(ordered) // (peers + 1)
        for i, block in enumerate(ordered if apart else ()):
            far = (ordered[(i + j * apart) % len(ordered)] for j in range(1, peers + 1))
            holders[block] = tuple(far)
    return mend_holders(fabric, request, hosts, peers, tuple(holders))


@with_gang_view
def mend_holders(
    fabric: Fabric,
    request: Request,
    hosts: Sequence[int],
    peers: int,
    holders: Holders,
    among: Iterable[int] | None = None,
) -> Holders:
    """Move copies that share a rack or feed with their original to hosts that do not, if there are
    any; to those with the fewest copies. `among`: only blocks on other hosts than before, and those
    whose copies they hold. Cost: O(blocks) for each that is amiss."""
    blocks = range(len(hosts))
    moved = set(blocks if among is None else among)
    suspects = [b for b in blocks if b in moved or moved & set(holders[b])]
    wrong = [
        b
        for b in suspects
        if len(holders[b]) != peers or any(_is_near(fabric, hosts[h], hosts[b]) for h in holders[b])
    ]
    if not wrong:
        return holders
    groups = _groups(request, fabric.gpus_per_host, len(hosts))
    mended = list(holders)
    load = Counter(h for held in mended for h in held)
    for block in wrong:
        apart = [b for b in blocks if b != block and not groups[b] & groups[block]]
        is_near = {b: _is_near(fabric, hosts[b], hosts[block]) for b in apart}
        kept = [h for h in mended[block] if not is_near.get(h, True)]
        more = sorted((b for b in apart if b not in kept), key=lambda b: (is_near[b], load[b], b))
        mended[block] = tuple([*kept, *more][:peers])
        load.update(set(mended[block]) - set(kept))
    return tuple(mended)


def close_copies(fabric: Fabric, hosts: Sequence[int], holders: Holders) -> list[int]:
    """Return the blocks of which a copy lies in the original's rack or behind its power feed, where
    no other place could be had."""
    copies = enumerate(holders)
    return [b for b, held in copies if any(_is_near(fabric, hosts[h], hosts[b]) for h in held)]


def restore_source(block: int, holders: Holders, lost: Iterable[int]) -> int | None:
    """Return the block whose copy of `block` is loaded when these blocks are lost; None where all
    copies are lost, so that the whole gang goes back to storage."""
    without = set(lost)
    return next((h for h in holders[block] if h not in without), None)


@struct(frozen=True, slots=True)
class Survival:
    """The probability that no block is lost with all of its copies when any `failed` hosts of the
    gang fail together. `is_exact`: False where the true probability may be higher."""

    failed: int
    probability: float
    is_exact: bool


def survival(holders: Holders, failed: int) -> Survival:
    """The chance that no copy is lost when k of N hosts fail. A set of m = peers + 1 hosts with all
    copies of a block is lost in C(N - m, k - m) of C(N, k) cases; S such sets are lost at most in S
    times as many.

    Where the sets are disjoint the rest of inclusion and exclusion is known too: j of them
    are lost together in C(N - j m, k - j m) cases.

    Source: Wang et al. (SOSP 2023), of which this is the first term: 1 - N/m C(N-m, k-m) / C(N, k).
    """
    n = len(holders)
    sets = {frozenset((b, *held)) for b, held in enumerate(holders)}
    if not sets or failed > n:
        return Survival(failed, float(failed <= 0), True)
    m = max(map(len, sets))
    is_disjoint = sum(map(len, sets)) == n and all(len(s) == m for s in sets)
    whole = comb(n, failed)
    if not is_disjoint:
        lost = sum(comb(n - len(s), failed - len(s)) for s in sets if len(s) <= failed)
        return Survival(failed, max(0.0, 1 - lost / whole), lost == 0)
    kept = sum(
        (-1) ** j * comb(len(sets), j) * comb(n - j * m, failed - j * m)
        for j in range(min(len(sets), failed // m) + 1)
    )
    return Survival(failed, kept / whole, True)


def fatal_domains(
    fabric: Fabric, hosts: Sequence[int], holders: Holders
) -> tuple[tuple[str, int, int], ...]:
    """Return by tier, from the outermost: (tier, domains that hold hosts of the gang, those whose
    loss loses state); then the power feeds where they are known."""
    kinds: list[tuple[str, list[int] | list[str]]] = [
        (tier.name, tier.domain_by_host[list(hosts)].tolist()) for tier in fabric.tiers
    ]
    if fabric.labels.get(POWER):
        kinds.append((POWER, [_feed(fabric, h) or f"host {h}" for h in hosts]))
    counts = []
    for name, domain in kinds:
        fatal = {
            domain[b] for b, held in enumerate(holders) if all(domain[h] == domain[b] for h in held)
        }
        counts.append((name, len(set(domain)), len(fatal)))
    return tuple(counts)


def renewal_by_uplink(
    fabric: Fabric, hosts: Sequence[int], holders: Holders, sizes: CheckpointSizes
) -> dict[Uplink, tuple[int, float]]:
    """Return what one renewal of all copies sends over each uplink that it crosses: (bytes that
    leave its domain, seconds of its fuller direction, infinite where it is down)."""
    copies = [(block, h) for block, held in enumerate(holders) for h in held]
    loads = {}
    for depth, tier in enumerate(fabric.tiers):
        domain = tier.domain_by_host[list(hosts)].tolist()
        crossing = [(domain[b], domain[h]) for b, h in copies if domain[b] != domain[h]]
        leaving, coming = Counter(a for a, _ in crossing), Counter(b for _, b in crossing)
        for number in sorted({*leaving, *coming}):
            most = max(leaving[number], coming[number]) * sizes.of_host
            carried = float(tier.uplink_bytes_per_s[number])
            sent = leaving[number] * sizes.of_host
            loads[depth, number] = sent, most / carried if carried else inf
    return loads


def renewal_loads(
    fabric: Fabric, hosts: Sequence[int], holders: Holders, sizes: CheckpointSizes
) -> tuple[tuple[str, int, float], ...]:
    """Return what one renewal of all copies sends: (tier, bytes that leave its domains, seconds of
    its fullest uplink), by tier from the outermost, and last the NICs of hosts, as tier "host"."""
    by_uplink = renewal_by_uplink(fabric, hosts, holders, sizes)
    loads = []
    for depth, tier in enumerate(fabric.tiers):
        over = [load for (level, _), load in by_uplink.items() if level == depth]
        seconds = max((seconds for _, seconds in over), default=0.0)
        loads.append((tier.name, sum(sent for sent, _ in over), seconds))
    coming = Counter(h for held in holders for h in held)
    most = max((*map(len, holders), *coming.values()), default=0)
    return (*loads, ("host", coming.total() * sizes.of_host, most * sizes.from_peer_s))


def _feed(fabric: Fabric, host: int) -> str | None:
    """The power feed that a host is labelled with."""
    feeds = fabric.labels.get(POWER, {})
    return next((feed for feed, members in feeds.items() if members >> host & 1), None)


def _is_near(fabric: Fabric, host: int, other: int) -> bool:
    """Do they share a rack or a feed? In a fabric of one tier each host is its own rack."""
    if host == other:
        return True
    racks = fabric.tiers[-1].domain_by_host if len(fabric.tiers) > 1 else None
    if racks is not None and racks[host] == racks[other]:
        return True
    feed = _feed(fabric, host)
    return feed is not None and feed == _feed(fabric, other)


def _classes(request: Request, gpus_per_host: int, blocks: int) -> list[list[int]]:
    """Blocks by the TP and PP coordinates of their first rank, where that keeps their groups
    apart; blocks of which two would share a group stand alone."""
    p = request.parallelism
    spread = [(p.stride(axis), p.size(axis)) for axis in ("tp", "pp") if axis in p.axes]
    alike: dict[tuple[int, ...], list[int]] = {}
    for block in range(blocks):
        first = block * gpus_per_host
        at = tuple(first // stride % size for stride, size in spread)
        alike.setdefault(at, []).append(block)
    groups = _groups(request, gpus_per_host, blocks)
    classes = []
    for members in alike.values():
        union = frozenset[int]().union(*(groups[b] for b in members))
        is_apart = len(union) == sum(len(groups[b]) for b in members)
        classes += [members] if is_apart else [[b] for b in members]
    return classes


def _groups(request: Request, gpus_per_host: int, blocks: int) -> list[frozenset[int]]:
    """The TP and PP groups that each block has ranks of, under numbers of their own."""
    p = request.parallelism
    sets: list[set[int]] = [set() for _ in range(blocks)]
    for offset, axis in enumerate(("tp", "pp")):
        if axis not in p.axes or p.size(axis) == 1:
            continue
        stride, size = p.stride(axis), p.size(axis)
        for block, groups in enumerate(sets):
            ranks = range(block * gpus_per_host, (block + 1) * gpus_per_host)
            groups |= {2 * (rank - rank // stride % size * stride) + offset for rank in ranks}
    return [frozenset(groups) for groups in sets]
