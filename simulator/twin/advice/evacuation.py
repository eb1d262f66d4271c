"""How many hosts of gangs find a place when a domain is taken out: a bound by max-flow.

Gangs in the domain send as many hosts as they have there to free hosts elsewhere that do for them;
hosts that are free are as many as each kind of gang may use in each other domain. No scheduler
rehosts more without stopping other gangs, so that the rest stand still, or stop others, at least.
"""

from __future__ import annotations

from collections.abc import Iterator

from placement import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import labelled
from placement.fabric.tree import Fabric
from scheduler.core import State
from scheduler.core.capacity import window_hosts


def evacuated(state: State, domain: str) -> tuple[int, int]:
    """Hosts of gangs in the domain, and how many of them find free hosts elsewhere at most.

    Raises: BadInput where nothing is called so. Cost: a flow of gangs x kinds of hosts.
    """
    import networkx as nx  # a tenth of a second: imported where it is used

    fabric = state.built_fabric
    inside = window_hosts.domain(fabric, domain)
    if not inside:
        raise BadInput("", f"{domain} is neither a domain nor a host of {fabric.name}")
    graph: nx.DiGraph[str] = nx.DiGraph()
    total = 0
    free = state.free & ~inside
    for name in state.index.running:
        job = state.jobs[name]
        if job.part_gpus:  # it needs GPUs, not a host
            continue
        here = sum(hostset.has(inside, host) for host in job.hosts)
        if not here:
            continue
        total += here
        graph.add_edge("source", name, capacity=here)
        for host_class, mask in _classes(fabric, free):
            if labelled(fabric, job.request.where, mask):
                graph.add_edge(name, host_class, capacity=here)
                graph.add_edge(host_class, "sink", capacity=mask.bit_count())
    if not total or "sink" not in graph:
        return total, 0
    return total, int(nx.maximum_flow_value(graph, "source", "sink"))


def _classes(fabric: Fabric, free: int) -> Iterator[tuple[str, int]]:
    """Free hosts by their GPUs and labels: a job may use all of a class, or none."""
    masks: dict[str, int] = {}
    for host in hostset.members(free):
        labels = [
            (key, value)
            for key, by_value in fabric.labels.items()
            for value, hosts in by_value.items()
            if hostset.has(hosts, host)
        ]
        name = f"hosts of {int(fabric.by_host.gpus[host])} {labels}"
        masks[name] = masks.get(name, 0) | 1 << host
    yield from masks.items()
