"""The order to the supervisor: what to run of an attempt, and what every rank finds in its
environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler.v1 import agent_pb2


def node_variables(node: int, ranks: int, world_size: int) -> dict[str, str]:
    """Return the variables of torchrun's node rank: this is the `node`th host and has so many
    `ranks`."""
    return {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(ranks),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
    }


def torchrun_variables(node: int, nodes: int, ranks: int) -> dict[str, str]:
    """Return variables that set torchrun's options."""
    return {
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(node),
        "PET_NPROC_PER_NODE": str(ranks),
    }


def gpu_variables(gpus: Sequence[int]) -> dict[str, str]:
    """Return variables that show a job only its GPUs, for CUDA and HIP; none on a whole host."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}


def attempt_variables(job: str, uid: str, attempt: int, nodes: int) -> dict[str, str]:
    """Return the variables that name the job and the attempt. `attempt`: from 1."""
    return {
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_RUN_ID": uid,
        "MUSTER_JOB": job,
        "MUSTER_JOB_UID": uid,
        "MUSTER_ATTEMPT": str(attempt),
        "MUSTER_NODES": str(nodes),
    }


def role_variables(role: str, first_rank: int) -> dict[str, str]:
    """Return the variables that name the role of the ranks and its first rank in the gang; RANK
    counts within the role."""
    return {"MUSTER_ROLE": role, "MUSTER_FIRST_RANK": str(first_rank)}


def order_of(wanted: agent_pb2.Prepare, user: str, workdir: str) -> dict[str, Any]:
    """Return what the agents of an attempt are to start, without what only each host, or the
    launch, knows."""
    first, ranks, attempt = wanted.first_rank, wanted.ranks, wanted.key.attempt
    is_without_gpus = wanted.env.get("CUDA_VISIBLE_DEVICES") == ""
    common = {
        **wanted.env,
        **node_variables(wanted.node, ranks, wanted.world_size),
        **attempt_variables(wanted.job, wanted.key.job_uid, attempt, wanted.nodes),
        **({} if is_without_gpus else gpu_variables(wanted.gpus)),
    }
    if wanted.role:
        common |= role_variables(wanted.role, wanted.role_first_rank)
    if wanted.one_process:
        common |= torchrun_variables(wanted.node, wanted.nodes, ranks)
    of_role = wanted.role_first_rank
    each = [
        {"rank": n, "env": {"RANK": str(n - of_role), "LOCAL_RANK": str(n - first)}}
        for n in range(first, first + (1 if wanted.one_process else ranks))
    ]
    return {
        "job": wanted.job,
        "command": list(wanted.command),
        "env": common,
        "env_from": dict(wanted.env_from),
        "workdir": workdir,
        "user": user,
        "ranks": each,
        "warm": list(wanted.warm),
        "gpus": list(wanted.gpus),
    }
