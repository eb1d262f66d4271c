"""What agents are told, as messages: one function for each order."""

from __future__ import annotations

from collections.abc import Mapping

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.model.job import Job
from scheduler.core.policies.job_terms import RunSpec
from scheduler.launch.gangs.gang import LaunchedGang
from scheduler.launch.gangs.memory_copies import MemoryCopies
from scheduler.v1 import agent_pb2

Order = agent_pb2.SessionResponse


def key_of(gang: LaunchedGang) -> agent_pb2.AttemptKey:
    return agent_pb2.AttemptKey(job_uid=gang.uid, attempt=gang.attempt)


@struct(frozen=True, slots=True)
class SiteTerms:
    """Terms of a site for every gang. `gate`: what has to end well on each host before the ranks
    start, within `limit_s`, which is that of gates of jobs too. `burn_in`: what idle hosts are
    checked with, see launch.burn_in. `env_by_label`: label, value, and
    variables of ranks on hosts that have it; the job's own win. `copies_gb`: memory of a host that
    copies of gangs' state may take; 0: agents keep none."""

    gate: tuple[str, ...] = ()
    limit_s: float = 300.0
    burn_in: Mapping[str, tuple[str, ...]] | None = None
    env_by_label: tuple[tuple[str, str, Mapping[str, str]], ...] = ()
    copies_gb: int = 0

    def env_of(self, fabric: Fabric, host: str) -> dict[str, str]:
        """Return the variables of ranks on a host."""
        index, env = fabric.index_by_name[host], dict[str, str]()
        for label, value, variables in self.env_by_label:
            if hostset.has(_labelled(fabric, label, value), index):
                env.update(variables)
        return env

    def unknown_labels(self, fabric: Fabric) -> list[str]:
        """Return the labels of `env_by_label` that no host has."""
        named = ((label, value) for label, value, _ in self.env_by_label)
        return [f"{label}={value}" for label, value in named if not _labelled(fabric, label, value)]

    def longest_s(self, run: RunSpec) -> float:
        """Return for how long the gates of a job may take."""
        return self.limit_s * len(self.all_of(run))

    def all_of(self, run: RunSpec) -> list[agent_pb2.Gate]:
        """Return the gates of a job: the site's, and its own."""
        gates = [agent_pb2.Gate(command=self.gate, is_of_site=True)] if self.gate else []
        gates += [agent_pb2.Gate(command=run.gate)] if run.gate else []
        for gate in gates:
            gate.limit.FromMilliseconds(round(self.limit_s * 1_000))
        return gates


NO_TERMS = SiteTerms()
_NO_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def _labelled(fabric: Fabric, label: str, value: str) -> HostSet:
    return fabric.labels.get(label, {}).get(value, 0)


def prepare(
    gang: LaunchedGang,
    host: str,
    site: SiteTerms,
    fabric: Fabric,
    copies: agent_pb2.CopyTerms | None = None,
    *,
    anew: bool = False,
) -> Order:
    """Order an agent to prepare an attempt. `copies`: how they are kept in memory, None: not at
    all. `anew`: begin again what was stopped on the host."""
    role, ranks = gang.role_of(host), gang.ranks_of(host)
    run, watts = role.run, gang.placed.job.gpu_watts
    held = {"MUSTER_GPU_WATTS": str(watts)} if watts else {}
    return Order(
        prepare=agent_pb2.Prepare(
            key=key_of(gang),
            job=gang.name,
            command=run.command,
            env=(_NO_GPUS if run.cpu_ranks else held) | site.env_of(fabric, host) | dict(run.env),
            env_from=run.secret_paths,
            workdir=run.workdir,
            user=run.user,
            node=role.hosts.index(host) if role.name else ranks.node,
            nodes=len(role.hosts),
            first_rank=ranks.first_rank,
            ranks=ranks.ranks,
            world_size=len(role.ranks),
            role=role.name,
            role_first_rank=role.ranks.start,
            anew=anew,
            one_process=run.per_host == 1,
            warm=run.warm,
            gpus=sorted(gang.gpus),
            tenant=gang.placed.job.tenant,
            gates=site.all_of(run),
            image=run.container.image if run.container else "",
            mounts=run.container.mounts if run.container else (),
            copies=copies,
        )
    )


def launch(
    gang: LaunchedGang,
    host: str,
    step: int,
    where: str,
    predecessor: str,
    copies: MemoryCopies,
) -> Order:
    """Order an agent to start the ranks from a checkpoint, or from newer copies in memory.
    `predecessor`: uid of the ended job that saved the checkpoint."""
    role = gang.role_of(host)
    address, port = gang.masters[role.name]
    places = [f"{each.name}={':'.join(map(str, gang.masters[each.name]))}" for each in gang.roles]
    copy_to, copy_of = gang.copies(host)
    copy_attempt, copy_step = copies.start_of(gang, step)
    return Order(
        launch=agent_pb2.Launch(
            key=key_of(gang),
            master_address=address,
            master_port=port,
            checkpoint=where,
            checkpoint_step=step,
            predecessor=predecessor,
            roles=",".join(places) if role.name else "",
            copy_to=copy_to,
            copy_of=copy_of,
            copy_addresses=copies.addresses(gang, host),
            copy_attempt=copy_attempt,
            copy_step=copy_step,
        )
    )


def save(gang: LaunchedGang, left_s: float) -> Order:
    """Order an agent to let ranks save within so many seconds."""
    word = agent_pb2.SaveCheckpoint(key=key_of(gang))
    word.left.FromMilliseconds(max(0, round(left_s * 1_000)))
    return Order(save_checkpoint=word)


def stop_saving(gang: LaunchedGang) -> Order:
    """Tell an agent that the save that was asked for is recorded."""
    return Order(save_checkpoint=agent_pb2.SaveCheckpoint(key=key_of(gang), done=True))


def dump_stacks(gang: LaunchedGang) -> Order:
    return Order(dump_stacks=agent_pb2.DumpStacks(key=key_of(gang)))


def stop(key: agent_pb2.AttemptKey, grace_s: float) -> Order:
    """Order an agent to end the ranks; those that have not ended by themselves after the grace
    period are killed."""
    word = agent_pb2.Stop(key=key)
    word.grace.FromMilliseconds(round(grace_s * 1_000))
    return Order(stop=word)


def forget(key: agent_pb2.AttemptKey) -> Order:
    """Order an agent to forget an attempt."""
    return Order(forget=agent_pb2.Forget(key=key))


def copies_complete(gang: LaunchedGang, step: int) -> Order:
    """Tell an agent that all copies of a step are in memory, so that older ones may go."""
    return Order(copies_complete=agent_pb2.CopiesComplete(key=key_of(gang), step=step))


def drop_copies(uid: str) -> Order:
    """Order an agent to remove all copies of a job."""
    return Order(drop_copies=agent_pb2.DropCopies(job_uid=uid))


def warm(job: Job, run: RunSpec) -> Order:
    """Order an agent to import the modules that the ranks of this job need, in advance."""
    return Order(warm=agent_pb2.Warm(interpreter=run.command[0], modules=run.warm, user=run.user))
