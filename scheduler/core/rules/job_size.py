"""How many replicas, hosts and spares a job takes on a fabric."""

from __future__ import annotations

from placement import legal_sizes
from placement.fabric.constraints import gpus_wanted
from placement.fabric.tree import Fabric
from placement.workload.replicas import sized
from scheduler.core.collections.evolve import evolve
from scheduler.core.model.job import Job


def fitted(job: Job, fabric: Fabric) -> Job:
    """A job that waits, with its legal sizes on this fabric, at the smallest of them.

    Raises: IndexError where there is none.
    """
    request = job.spec.request
    sizes = legal_sizes(fabric, request, job.spec.min_dp) if job.spec.min_dp else ()
    dp = sizes[0] if sizes else request.parallelism.dp
    gpus = gpus_wanted(fabric, request.where)
    hosts = sized(request, dp).hosts_needed(gpus)
    return evolve(
        job,
        part_gpus=(part := sized(request, dp).part_gpus(gpus)),
        host_gpus=gpus if part else 0,
        gang_hosts=hosts,
        needed=hosts + request.spares.required(hosts),
        sizes=sizes,
        dp=dp,
    )
