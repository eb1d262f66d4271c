"""Which GPUs of a host a job takes that fills only a part of it.

The NUMA node with the least room that holds all of them; there an aligned run, so that two GPUs
share a network card and four a switch where their numbers say so, and what is left stays whole
for the next one. Where no node has the room, whatever is left, node by node.
"""

from __future__ import annotations

from collections.abc import Collection

from placement.fabric.tree import Fabric


def choose_gpus(
    fabric: Fabric, host: int, taken: Collection[int], count: int
) -> tuple[int, ...] | None:
    """Choose `count` GPUs of a host that are not `taken`, ascending; None where there are too few.

    Source: buddy allocation, Knowlton, CACM 8(10), 1965; by NUMA node as Slurm's gres.conf Cores.
    """
    groups = fabric.by_host.groups(host)
    free = [tuple(gpu for gpu in group if gpu not in taken) for group in groups]
    if sum(map(len, free)) < count:
        return None
    fits = [at for at, left in enumerate(free) if len(left) >= count]
    if fits:
        at = min(fits, key=lambda each: len(free[each]))
        return tuple(sorted(_run(groups[at], free[at], count)))
    by_room = sorted(free, key=len, reverse=True)
    return tuple(sorted([gpu for left in by_room for gpu in left][:count]))


def _run(group: tuple[int, ...], free: tuple[int, ...], count: int) -> tuple[int, ...]:
    """An aligned run of `count` in the group, of those that touch the fewest free ones around;
    else the first that are free."""
    width = 1
    while width < count:
        width *= 2
    runs = [group[at : at + count] for at in range(0, len(group) - count + 1, width)]
    whole = [run for run in runs if all(gpu in free for gpu in run)]
    if not whole:
        return free[:count]
    return min(whole, key=lambda run: _room_around(group, free, group.index(run[0]), 2 * width))


def _room_around(group: tuple[int, ...], free: tuple[int, ...], at: int, width: int) -> int:
    """Free GPUs of the larger run that this one is in, up to the whole group: the fullest place
    is taken first."""
    around = group[at // width * width : at // width * width + width]
    room = sum(gpu in free for gpu in around)
    if width >= len(group):
        return room
    return room * len(group) + _room_around(group, free, at, 2 * width)
