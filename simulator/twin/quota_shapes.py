"""Shapes of quotas: the same shares of a cluster, promised in different ways.

Shares are those of the GPU-hours that each tenant had, as far as the log is kept; every tenant
counts as if it had used one host for a hundredth of the log. Guarantees and limits are whole hosts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from muster.structs import replace
from placement import BadInput
from placement.fabric.tree import Fabric
from scheduler.core.model.job_account import shown
from scheduler.core.policies.tenants import GuaranteedCell, Tenant, Tenants
from simulator.twin.fork import ClusterFork

NONE, GUARANTEES, LIMITS, RACKS = "none", "guarantees", "limits", "racks"
QUOTA_SHAPES = (NONE, GUARANTEES, LIMITS, RACKS)
_LEAST = 0.01


def used_host_ns(fork: ClusterFork) -> dict[str, int]:
    """Host time that jobs of each tenant have held. Cost: O(jobs)."""
    costs, used = fork.state.tenants.preemption.costs, dict[str, int]()
    for job in (*fork.ended, *fork.state.jobs.values()):
        account = shown(job, max(fork.now_ns, job.goodput.counted_ns), costs)
        used[job.tenant] = used.get(job.tenant, 0) + account.hosts.held
    return used


def with_quotas(tenants: Tenants, shape: str, fabric: Fabric, used: Mapping[str, int]) -> Tenants:
    """The tenants with this shape of quotas in place of theirs. Raises: BadInput where the shape
    does not fit the fabric, or one tenant is all there is."""
    leaves = [each.name for each in tenants.tenants if each.name not in tenants.inner]
    if shape != NONE and len(leaves) < 2:
        raise BadInput("", f"{leaves[0]} is the only tenant: nobody shares with it")
    hosts = _hosts(leaves, fabric, used)
    per_rack = _rack_hosts(fabric) if shape == RACKS else 1
    gpus_of = {name: count * fabric.gpus_per_host for name, count in hosts.items()}
    cells = {name: count // per_rack for name, count in hosts.items()}
    changed: dict[str, Tenant] = {}
    for tenant in reversed(tenants.tenants):  # sub-tenants before their parents
        name = tenant.name
        inside = [each for each in changed.values() if each.parent == name]
        guarantee, limit = sum(each.guaranteed_gpus for each in inside), None
        own: tuple[GuaranteedCell, ...] = ()
        if not inside:
            if shape == GUARANTEES:
                guarantee = gpus_of[name]
            elif shape == LIMITS:
                limit = gpus_of[name]
            elif shape == RACKS and cells[name]:
                own = (GuaranteedCell(fabric.tiers[-1].name, cells[name]),)
                guarantee = cells[name] * per_rack * fabric.gpus_per_host
        changed[name] = replace(tenant, guaranteed_gpus=guarantee, limit_gpus=limit, cells=own)
    return replace(tenants, tenants=tuple(changed[each.name] for each in tenants.tenants))


def _hosts(leaves: list[str], fabric: Fabric, used: Mapping[str, int]) -> dict[str, int]:
    """Whole hosts of each, all that there are, by largest remainders; one at least."""
    count = fabric.host_count
    if len(leaves) > count:
        raise BadInput("", f"{len(leaves):,} tenants share {count:,} hosts: less than one each")
    total = sum(used.get(name, 0) for name in leaves) or 1
    weight = {name: max(used.get(name, 0) / total, _LEAST) for name in leaves}
    scale = (count - len(leaves)) / sum(weight.values())
    exact = {name: 1 + scale * weight[name] for name in leaves}
    hosts = defaultdict(int, {name: int(share) for name, share in exact.items()})
    left = count - sum(hosts.values())
    for name in sorted(leaves, key=lambda each: hosts[each] - exact[each])[:left]:
        hosts[name] += 1
    return dict(hosts)


def _rack_hosts(fabric: Fabric) -> int:
    """Hosts of each domain next to the hosts. Raises: BadInput where they differ."""
    if not fabric.tiers or fabric.is_mixed:
        raise BadInput("", f"guarantees by racks need racks that are alike; {fabric.name} has none")
    rack = fabric.tiers[-1]
    counts = {int((rack.domain_by_host == at).sum()) for at in range(len(rack.domains))}
    if len(counts) > 1:
        raise BadInput("", f"guarantees by {rack.name}s need {rack.name}s of one size")
    return counts.pop()
