"""What a job runs, how it saves its state, when it hangs, and after which failures it is started
again, as far as its owner says."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from muster.structs import replace, struct
from placement import BadInput
from scheduler.core.policies.costs import Costs

GRACE_S: Final = 30
WARN_S: Final = 60
SECRETS: Final = "/run/muster-secrets"  # of a host, or of the pod of its agent
RANK_VARIABLES: Final = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
        *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"),
    }
)
"""Set for every rank, beside those that begin with MUSTER_."""


@struct(frozen=True, slots=True)
class ContainerSpec:
    """The container in which ranks run. `image`: REGISTRY/NAME:TAG, or an absolute path of the
    hosts. `mounts`: SOURCE:TARGET or SOURCE:TARGET:ro, absolute paths of the host and in the
    container."""

    image: str
    mounts: tuple[str, ...] = ()


class RoleRestart(StrEnum):
    """The part that is started again when a rank of a role fails: the gang or the role."""

    GANG = "gang"
    ROLE = "role"


@struct(frozen=True, slots=True)
class RoleRun:
    """Command of a role's ranks, where that differs from what the job says."""

    name: str
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    per_host: int = 0
    restart: RoleRestart = RoleRestart.GANG


@struct(frozen=True, slots=True)
class RunSpec:
    """The command of every rank, as argv, which no shell reads.

    `env`: (name, value), sorted. `workdir` "": the home directory of the user. `user` "": the
    default one of the host. `per_host`: processes on a host; 0: one a GPU. `grace_s`: from SIGTERM
    to SIGKILL where nothing has failed. `warm`: modules that a Python process has imported
    beforehand, from which the ranks are forked. `lineage`: the run that the job continues
    (core.model.run_lineage), "": the one of its own name. `new_run`: it begins anew. `resume_from`:
    another run of its user whose newest checkpoint it begins from, or the absolute path of a
    checkpoint. `warn_s`: so early before its time limit its ranks are asked to save. `gate`: what
    has to end well on each host before its ranks start. `idle_s`: it ends when nobody has run a
    command beside its ranks for so long; 0: it does not. `env_from`: (name, where hosts read its
    value), sorted. `container`: in which the ranks run, None: in none. `cpu_ranks`: of each host,
    which see no GPU; 0: each has one. `roles`: of a gang of several, each in the order of its
    ranks.
    """

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    user: str = ""
    per_host: int = 0
    grace_s: int = GRACE_S
    warm: tuple[str, ...] = ()
    lineage: str = ""
    new_run: bool = False
    resume_from: str = ""
    warn_s: int = WARN_S
    gate: tuple[str, ...] = ()
    idle_s: int = 0
    env_from: tuple[tuple[str, str], ...] = ()
    container: ContainerSpec | None = None
    cpu_ranks: int = 0
    roles: tuple[RoleRun, ...] = ()

    def of_role(self, role: RoleRun) -> RunSpec:
        """Return what the ranks of a role run."""
        env = tuple(sorted({**dict(self.env), **dict(role.env)}.items()))
        command, per_host = role.command or self.command, role.per_host or self.per_host
        return replace(self, command=command, env=env, per_host=per_host)

    @property
    def secret_paths(self) -> dict[str, str]:
        """The files of a host that have the values of `env_from`, by name."""
        folder = f"{SECRETS}/"
        return {
            name: where.removeprefix("file:").replace("secret:", folder, 1)
            for name, where in self.env_from
        }

    @property
    def is_python(self) -> bool:
        """Whether the command is `python FILE ...` or `python -m MODULE ...`, whose process can be
        forked from a warm one."""
        if len(self.command) < 2 or not self.command[0].rpartition("/")[2].startswith("python"):
            return False
        first = self.command[1]
        return not first.startswith("-") or (first == "-m" and len(self.command) > 2)


_STEP: Final = re.compile(
    r"(?P<path>/.*(?:step|iter|checkpoint)[-_=]?0*(?P<step>\d+)(?:\.ckpt)?/?)"
    r"|(?P<at>/.*)@(?P<number>\d+)"
)


def parse_checkpoint(text: str) -> tuple[int, str]:
    """Return the step and the path of `/ckpt/step-000500` or `/ckpt/last@500`. Raises: BadInput
    without a field, where no step can be read."""
    match = _STEP.fullmatch(text)
    if match is None:
        raise BadInput("", f"does not end with its step, as /ckpt/step-500 or PATH@500: {text!r}")
    return int(match["step"] or match["number"]), match["path"] or match["at"]


class SavedCheckpoint(Struct, frozen=True):
    """The newest checkpoint that the ranks of a job have reported. `where`: as they call it."""

    attempt: int
    step: int
    where: str
    at_ns: int


PEER_INTERVAL_S = 60
MOST_PEERS = 3
Holders = tuple[tuple[int, ...], ...]  # of each block, the blocks that have copies of its state


@struct(frozen=True, slots=True)
class CheckpointTerms:
    """How a job saves its state. `interval_s`: productive time between two checkpoints in storage,
    None = as the tenants file says. `peers`: hosts that each have a copy of a host's state in
    memory, renewed every `peer_interval_s`; 0 = none. `keep`: the newest checkpoints that stay in
    storage; 0 = all. `store`: of the fabric file, that checkpoints are in; empty = its first."""

    interval_s: int | None = None
    peers: int = 0
    peer_interval_s: int = PEER_INTERVAL_S
    keep: int = 0
    store: str = ""

    def costs(self, usual: Costs, *, is_restored: bool = False) -> Costs:
        """Return this job's costs of an interruption. `is_restored`: its state comes from peers."""
        interval_s = self.peer_interval_s if is_restored else self.interval_s
        return usual if interval_s is None else replace(usual, checkpoint_s=interval_s)


AS_USUAL = CheckpointTerms()
TOKEN_BYTES = 4.0


@struct(frozen=True, slots=True)
class DatasetTerms:
    """The dataset that a gang reads from storage while it trains.

    `token_bytes`: of a token as it is stored. `tokens`: of a step, 0 = those of the batch.
    `shards`: files that replicas share out, each reading its own where their number divides by
    that of the replicas, and else all of them; 0 = each replica reads its own part.
    `read_gb_per_s`: GB/s of the whole gang as measured, in place of all these; 0 = not given.
    `store`: of the fabric file, that the dataset is in; empty = its first.
    """

    token_bytes: float = TOKEN_BYTES
    tokens: int = 0
    shards: int = 0
    read_gb_per_s: float = 0.0
    store: str = ""


class HangAction(StrEnum):
    """The action once a gang hangs. Its stacks are taken in any case."""

    WARN = "warn"  # it is said, and the gang runs on
    RESTART = "restart"  # the attempt has failed
    ASK = "ask"  # the attempt is stopped, and the job held until its owner releases it
    IGNORE = "ignore"  # nobody looks


@struct(frozen=True, slots=True)
class HangTerms:
    """When the steps of a gang count as stopped, and what is done then. `after_s`: without a step,
    at least; longer where steps, or pauses between them, took long before. `first_step_s`: without
    a first step after all ranks have started; None = for ever."""

    after_s: int = 1_800
    action: HangAction = HangAction.WARN
    first_step_s: int | None = None


AS_WARNED = HangTerms()


class StopCause(StrEnum):
    """The cause that stopped an attempt."""

    EXIT = "exit"  # a rank ended by itself, with a code other than 0
    SIGNAL = "signal"  # a rank was killed
    OOM = "oom"  # a rank ran out of memory, of its GPU or of its host
    HANG = "hang"  # steps stopped coming
    HOST = "host"  # a host failed, or could not start its ranks


class Requeueing(StrEnum):
    """Whether a gang that was stopped for the sake of others waits again."""

    ALWAYS = "always"
    NEVER = "never"  # its job has failed


@struct(frozen=True, slots=True)
class RestartRule:
    """After which failures a job is started again, and how often. `most`: attempts in a row that
    may follow a failure before anything is saved; None: as the tenants file says. `backoff_s`:
    pause before the first of them, twice as long each time; None: as the tenants file says. `exit`:
    codes after which the job is started again, None = all. `oom`, `hang`, `host`: whether it is
    after these."""

    most: int | None = None
    backoff_s: int | None = None
    exit: tuple[int, ...] | None = None
    oom: bool = True
    hang: bool = True
    host: bool = True

    def refusal(self, cause: StopCause | None, code: int) -> str:
        """Return why the job is not started again after this failure; "" when it may be."""
        if cause is StopCause.EXIT and self.exit is not None and code not in self.exit:
            codes = ", ".join(map(str, self.exit)) or "no code"
            return f"restarts.on.exit has {codes}"
        is_off = {
            StopCause.OOM: not self.oom,
            StopCause.HANG: not self.hang,
            StopCause.HOST: not self.host,
        }
        return f"restarts.on.{cause} is false" if cause is not None and is_off.get(cause) else ""


AS_TENANTS = RestartRule()
