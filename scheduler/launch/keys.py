"""Sections of the server file that launchers act on, as they have them, and types of their keys."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from scheduler.access.addresses import MOST_PORT, host_and_port
from scheduler.files.errors import short
from scheduler.files.field_types import wrong_value
from scheduler.files.job_keys import Keys, Seconds, Text

OWN_STEP_OPTIONS = frozenset(
    f"--{name}"
    for name in (
        *("jobid", "overlap", "no-kill", "kill-on-bad-exit", "nodes", "ntasks", "nodelist"),
        *("ntasks-per-node", "input", "export", "chdir", "job-name"),
    )
)


class HoldingScope(StrEnum):
    """The hosts that are held together: all of the fabric at once, or those of each gang."""

    WHOLE = "whole"
    GANG = "gang"


class StepScope(StrEnum):
    """How long a Slurm step of agents lasts."""

    ALLOCATION = "allocation"
    ATTEMPT = "attempt"


def resolve_path(value: Any, info: ValidationInfo) -> str:
    """Return a path as seen from the file that names it."""
    if not isinstance(value, str) or not value:
        raise wrong_value(f"must be the path of a file, not {short(value)}")
    folder = (info.context or {}).get("folder", Path())
    try:
        return str(folder / Path(value).expanduser())
    except RuntimeError:  # ~nobody
        raise wrong_value(f"names a home directory that does not exist: {short(value)}") from None


FilePath = Annotated[str, BeforeValidator(resolve_path)]


def check_address(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    host, port = host_and_port(text)
    if not host or port is None:
        raise wrong_value(f"must be HOST:PORT, a port up to {MOST_PORT:,}, not {short(value)}")
    return text


Address = Annotated[str, BeforeValidator(check_address)]


def _addresses(value: Any) -> str:
    for part in value.split(",") if isinstance(value, str) else [value]:
        check_address(part)
    return str(value)


Addresses = Annotated[str, BeforeValidator(_addresses)]


def _slurm_name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,32}", value):
        raise wrong_value(f"must be up to 32 letters, digits, . _ or -, not {short(value)}")
    return value


def _step_options(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if not word.startswith("--"):
            raise wrong_value(f"must be options of srun as --name=value, not {short(word)}")
        if word.partition("=")[0] in OWN_STEP_OPTIONS:
            raise wrong_value(f"must leave {word.partition('=')[0]} to muster")
    return words


def _of_gangs(accounts: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    if accounts and info.data.get("holding") is HoldingScope.WHOLE:
        raise wrong_value("needs `holding: gang`: one allocation of all hosts has one `account`")
    return accounts


class SlurmKeys(Keys):
    """How `launcher: slurm` holds its hosts (docs/slurm.md).

    `holding`: `whole` for one allocation of all hosts of the fabric, `gang` for one a gang.
    `step`: `allocation` for agents that stay as long as it, `attempt` for a step of agents an
    attempt of a gang; `step_options`: of srun, as --container-image=IMAGE.
    `muster`: the program on the hosts; None: where the server's own is. `state`: a folder of each
    agent on its host, %h is its name. `server`: HOST:PORT at which hosts reach `agents.listen`, of
    all servers that share the store. `allow`, `ca`: files on the hosts. `name`: of allocations, one
    for all servers of a store. `partition`, `account`, `qos`, `reservation`: of
    allocations; `accounts`: of those of single gangs, by tenant; `licenses`: of the first
    allocation of a gang, or of the fabric.
    """

    holding: HoldingScope = HoldingScope.WHOLE
    step: StepScope = StepScope.ALLOCATION
    step_options: Annotated[tuple[Text, ...], AfterValidator(_step_options)] = ()
    muster: Text | None = None
    state: Text | None = None
    server: Addresses | None = None
    allow: Text | None = None
    ca: Text | None = None
    name: Annotated[str, BeforeValidator(_slurm_name)] = "muster"
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    reservation: Text | None = None
    licenses: Text | None = None
    accounts: Annotated[dict[str, Text], AfterValidator(_of_gangs)] = Field(default_factory=dict)

    @property
    def allocation_options(self) -> tuple[str, ...]:
        """Return the options of salloc."""
        names = ("partition", "account", "qos", "reservation")
        given = ((name, getattr(self, name)) for name in names)
        return tuple(f"--{name}={value}" for name, value in given if value)


class ConditionEffect(StrEnum):
    """Fate of a host whose node has this condition."""

    CORDON = "cordon"
    DRAIN = "drain"
    FAILING = "failing"
    DOWN = "down"


def _dns_label(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", value):
        raise wrong_value(f"must be up to 40 of a-z, 0-9 and -, not {short(value)}")
    return value


class KubernetesKeys(Keys):
    """How `launcher: kubernetes` has its pods (docs/kubernetes.md).

    `kubeconfig`, `context`: None: those of the user, or the service account of the server's pod.
    `name`: of pods, one for each server in a namespace. `image`: with muster in it; `template`: a
    file with the rest of a pod. `images`: with muster in them, which jobs may have instead, or what
    their names begin with. `server`: HOST:PORT at which pods reach `agents.listen`, of all servers
    that share the store.
    `holding`: `gang` for pods on the hosts and spares of gangs, `whole` for one on every host.
    `service_account`, `priority_class`, `runtime_class`, `gpu_resource`: of pods. `allow`: a file
    in the image. `ca`: who signed the certificate of `tls`; pods get it. `start_s`: for which a pod
    may take to start. `grace_s`: for which an evicted gang may save. `conditions`: more conditions
    of nodes, and what it means that they are True. `adopt`: namespaces whose pods with `name` for a
    scheduler are bound as gangs, and the tenant of each.
    """

    kubeconfig: FilePath | None = None
    context: Text | None = None
    namespace: Annotated[str, BeforeValidator(_dns_label)] = "muster"
    name: Annotated[str, BeforeValidator(_dns_label)] = "muster"
    image: Text | None = None
    images: tuple[Text, ...] = ()
    template: FilePath | None = None
    server: Addresses | None = None
    holding: HoldingScope = HoldingScope.GANG
    service_account: Text | None = None
    priority_class: Text | None = None
    runtime_class: Text | None = None
    gpu_resource: Text | None = "nvidia.com/gpu"
    allow: Text | None = None
    ca: FilePath | None = None
    start_s: Seconds = 600
    grace_s: Seconds = 120
    conditions: dict[str, ConditionEffect] = Field(default_factory=dict)
    adopt: dict[str, str | None] = Field(default_factory=dict)
