"""What gangs of job files do to the storage that they share: for `checkpoint` and `estimate`."""

from __future__ import annotations

from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import Placement
from scheduler.cli.offline.place import cluster_of, place_job
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.storage_use import StorageUse, storage_use
from scheduler.files.inputs import JobFile


def use_beside(job: JobFile, fabric: Fabric, busy: HostSet) -> tuple[StorageUse, HostSet]:
    """Return what the gang of a job file does to storage, and the busy hosts with its own, which
    are known where its stores have paths: it is placed then.

    Raises: InputError where it names a store that the fabric does not have, or finds no hosts.
    """
    spec = job.spec
    with job.naming_lines():
        use = storage_use(fabric, spec.request, spec.dataset, spec.checkpoint, Costs())
    if not (use.read_store.paths or use.write_store.paths):
        return use, busy
    _, answer, _ = place_job(job, cluster_of(job, fabric, busy, 0), 0)
    if not isinstance(answer, Placement):
        reason = f"finds no hosts, whose paths to storage count: {answer.reason}"
        raise job.document.error(("", reason))
    return use.on(fabric, answer.hosts), busy | answer.allocation
