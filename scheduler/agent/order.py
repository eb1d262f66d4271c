"""What the supervisor is told to run: the order of an attempt, and what every rank finds in its
environment."""

from __future__ import annotations

from typing import Any

from scheduler.v1 import agent_pb2


def order_of(wanted: agent_pb2.Prepare, user: str, workdir: str) -> dict[str, Any]:
    """The order but for what only this host knows, and what only the launch brings."""
    first, ranks, attempt = wanted.first_rank, wanted.ranks, wanted.key.attempt
    common = {
        **wanted.env,
        "WORLD_SIZE": str(wanted.world_size),
        "LOCAL_WORLD_SIZE": str(ranks),
        "NODE_RANK": str(wanted.node),
        "GROUP_RANK": str(wanted.node),
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_RUN_ID": wanted.key.job_uid,
        "MUSTER_JOB": wanted.job,
        "MUSTER_JOB_UID": wanted.key.job_uid,
        "MUSTER_ATTEMPT": str(attempt),
        "MUSTER_NODES": str(wanted.nodes),
    }
    if wanted.one_process:  # torchrun reads its options there
        common |= {
            "PET_NNODES": str(wanted.nodes),
            "PET_NODE_RANK": str(wanted.node),
            "PET_NPROC_PER_NODE": str(ranks),
        }
    numbers = [0] if wanted.one_process else range(ranks)
    each = [
        {"rank": first + n, "env": {"RANK": str(first + n), "LOCAL_RANK": str(n)}} for n in numbers
    ]
    return {
        "job": wanted.job,
        "command": list(wanted.command),
        "env": common,
        "workdir": workdir,
        "user": user,
        "ranks": each,
        "warm": list(wanted.warm),
    }
