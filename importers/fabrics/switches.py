"""From a list of switches, each with its children, to the tree they form.

Levels are counted from the hosts, as switch tiers are. A switch that hangs higher
than its height (a leaf directly under the core) stands alone on the levels between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.structs import replace, struct
from scheduler.files.errors import InputError, refusal
from scheduler.files.fabrics.network import Path, TopologyNetwork, names_from_below, shortened

NO_TOPOLOGY = "no-topology"  # where Topograph puts hosts that it knows nothing of
HIGHEST = 16


@struct(frozen=True, slots=True)
class Switch:
    """One switch or block, what is below it, and where it was read."""

    name: str
    switches: tuple[str, ...]
    nodes: tuple[str, ...]
    source: str
    line: int

    def refusal(self, message: str) -> InputError:
        return refusal(message, self.source, self.line, self.name)


def network(switches: Sequence[Switch]) -> TopologyNetwork:
    """Return the network that these switches span.

    Raises: InputError on switches that form no tree, on hosts under two switches.
    """
    notes: list[str] = []
    by_name = _without_parallel(_by_name(switches, notes), notes)
    parent = _parents(by_name)
    _check_hosts(by_name)
    roots = [name for name in by_name if name not in parent]
    heights: dict[str, int] = {}
    height = max((_measure(by_name, root, heights, 1) for root in roots), default=0)
    _refuse_circles(by_name, heights)
    lone: list[str] = []
    leaves = [leaf for root in roots for leaf in _leaves(by_name, heights, root, (), height, lone)]
    if lone:
        verbs = ("skips", "stands") if len(lone) == 1 else ("skip", "stand")
        pronoun = "it" if len(lone) == 1 else "they"
        notes.append(f"{shortened(lone)} {verbs[0]} a tier: {pronoun} {verbs[1]} alone there")
    empty = [name for name, levels in heights.items() if not levels]
    if empty:
        notes.append(f"left out: {shortened(empty)}, with no host below")
    hosts = tuple(host for switch, _ in leaves for host in switch.nodes)
    paths = tuple(path for switch, path in leaves for _ in switch.nodes)
    return TopologyNetwork(hosts, paths, names_from_below(height), notes=tuple(notes))


def _by_name(switches: Sequence[Switch], notes: list[str]) -> dict[str, Switch]:
    by_name: dict[str, Switch] = {}
    for switch in switches:
        if switch.name in by_name:
            first = by_name[switch.name].line
            raise switch.refusal(f"is defined twice, first in line {first}")
        if switch.nodes and switch.switches:
            raise switch.refusal("has both hosts and switches below; give the hosts a switch")
        by_name[switch.name] = switch
    placeless = by_name.pop(NO_TOPOLOGY, None)
    if placeless:
        notes.append(f"left out: {shortened(placeless.nodes)}, under {NO_TOPOLOGY}")
    return by_name


def _without_parallel(by_name: Mapping[str, Switch], notes: list[str]) -> dict[str, Switch]:
    """The switches without parallel ones: of switches with the same children, as the spines of a
    fat tree, only the first stays."""
    first: dict[frozenset[str], str] = {}
    for name, switch in by_name.items():
        if switch.switches:
            first.setdefault(frozenset(switch.switches), name)
    kept = {
        name: switch
        for name, switch in by_name.items()
        if not switch.switches or first[frozenset(switch.switches)] == name
    }
    if len(kept) == len(by_name):
        return kept
    dropped = [name for name in by_name if name not in kept]
    notes.append(f"{shortened(dropped)}: parallel to another switch, counted once")
    left_out = set(dropped)
    return {
        name: replace(switch, switches=tuple(c for c in switch.switches if c not in left_out))
        for name, switch in kept.items()
    }


def _parents(by_name: Mapping[str, Switch]) -> dict[str, str]:
    parent: dict[str, str] = {}
    for switch in by_name.values():
        for child in switch.switches:
            if child not in by_name:
                raise switch.refusal(f"names a switch {child!r} that no line defines")
            if child in parent:
                where = f"under {parent[child]} and under {switch.name}"
                raise switch.refusal(f"switch {child} is {where}; a tree has one place for it")
            parent[child] = switch.name
    return parent


def _check_hosts(by_name: Mapping[str, Switch]) -> None:
    above: dict[str, str] = {}
    for switch in by_name.values():
        for host in switch.nodes:
            if host in above:
                where = f"under {above[host]} and under {switch.name}"
                raise switch.refusal(f"host {host} is {where}; a tree has one place for it")
            above[host] = switch.name


def _measure(by_name: Mapping[str, Switch], name: str, heights: dict[str, int], depth: int) -> int:
    """1 for a switch with hosts, one above the highest child for others, 0 with none below."""
    switch = by_name[name]
    if depth > HIGHEST:
        raise switch.refusal(f"is below {HIGHEST} other switches; at most {HIGHEST - 1}")
    below = [_measure(by_name, child, heights, depth + 1) for child in switch.switches]
    highest = max(below, default=0)
    heights[name] = highest + 1 if highest else int(bool(switch.nodes))
    return heights[name]


def _refuse_circles(by_name: Mapping[str, Switch], heights: Mapping[str, int]) -> None:
    """With one parent each, a switch that no root reaches stands in a circle or below one."""
    for name, switch in by_name.items():
        if name not in heights:
            raise switch.refusal("is in, or below, a circle of switches")


def _leaves(
    by_name: Mapping[str, Switch],
    heights: Mapping[str, int],
    name: str,
    above: Path,
    level: int,
    lone: list[str],
) -> Iterator[tuple[Switch, Path]]:
    """Switches with hosts, and the path to each, filled up where it skips levels; `lone` takes the
    names of those that do."""
    switch, height = by_name[name], heights[name]
    if not height:
        return
    if level > height:
        lone.append(name)
    path = (*above, *(name,) * (level - height + 1))
    if switch.nodes:
        yield switch, path
    for child in switch.switches:
        yield from _leaves(by_name, heights, child, path, height - 1, lone)
