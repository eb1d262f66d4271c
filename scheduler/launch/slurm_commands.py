"""Commands of Slurm as muster calls them, and how their answers are read.

All are of Slurm 22.05 and later, start without a shell, and need an ordinary user; `down` alone
needs an operator's rights. slurmrestd is not needed.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from muster.structs import struct
from placement import BadInput
from placement.fabric import hostlist
from scheduler.files.errors import InputError
from scheduler.files.health.found import ImportedReport
from scheduler.files.health.slurmnodes import read_nodes

_PATIENCE_S = 30.0
_JOBS = "%i|%T|%u|%N|%j"  # the name last: it may hold anything
_NODE_FIELD = re.compile(r"(?:^|\s)(NodeName|Gres)=(\S+)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)??:(\d+)(?=[,(]|$)")
_GPU_OPTIONS = ("--gres", "--gpus")  # and --gpus-per-node, ...
GRANT_S = 5  # an allocation of idle hosts that is not granted by then is given up

Run = Callable[[Sequence[str]], Coroutine[Any, Any, str]]


class SlurmFailed(Exception):
    """A command did not do what it should; the text is its own."""


@struct(frozen=True, slots=True)
class SlurmJob:
    """`hosts`: none while it waits."""

    job_id: str
    state: str
    user: str
    hosts: tuple[str, ...]
    name: str

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"


async def run_command(words: Sequence[str]) -> str:
    """What it writes. Raises: SlurmFailed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        reason = "no such program in PATH; `launcher: slurm` needs Slurm's commands where it serves"
        raise SlurmFailed(f"{words[0]}: {reason}") from None
    except OSError as error:
        raise SlurmFailed(f"{words[0]}: {error.strerror}") from None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            out, err = await process.communicate()
    except TimeoutError:
        raise SlurmFailed(f"{words[0]} did not answer for {_PATIENCE_S:g} s") from None
    finally:
        if process.returncode is None:  # timed out, or the server ends
            process.kill()
            await process.wait()
    if process.returncode:
        text = err.decode("utf-8", "replace").strip().splitlines()
        reason = text[-1] if text else f"ended with {process.returncode}"
        reason = reason.removeprefix(f"{words[0]}: ").removeprefix("error: ")
        raise SlurmFailed(f"{words[0]}: {reason}")
    return out.decode("utf-8", "replace")


@struct(frozen=True, slots=True)
class SlurmCommands:
    """`options`: of salloc, such as a partition."""

    options: tuple[str, ...] = ()
    run: Run = run_command

    async def jobs(self) -> list[SlurmJob]:
        """Everybody's jobs that wait or hold nodes. Raises: SlurmFailed."""
        states = "PENDING,CONFIGURING,RUNNING,SUSPENDED"
        text = await self.run(["squeue", "-h", "-t", states, "-o", _JOBS])
        return [read_job(row) for row in text.splitlines() if row.strip()]

    async def nodes(self) -> tuple[list[ImportedReport], dict[str, int]]:
        """How Slurm sees its nodes, and the GPUs of nodes that have some for it. Raises:
        SlurmFailed."""
        text = await self.run(["scontrol", "show", "nodes", "-o"])
        try:
            return read_nodes(text, "scontrol show nodes"), read_gpus(text)
        except InputError as error:
            raise SlurmFailed(str(error)) from None

    async def allocate(self, name: str, hosts: Sequence[str]) -> None:
        """Exactly these hosts, all or none. Raises: SlurmFailed."""
        await self.run(allocation(name, hosts, self.options))

    async def cancel(self, job_id: str) -> None:
        """Raises: SlurmFailed."""
        await self.run(["scancel", job_id])

    async def down(self, host: str, reason: str) -> None:
        """Raises: SlurmFailed, without an operator's rights for one."""
        words = ["scontrol", "update", f"nodename={host}", "state=down", f"reason={reason}"]
        await self.run(words)


def allocation(name: str, hosts: Sequence[str], options: Sequence[str]) -> list[str]:
    """One without a batch host, so that any of its hosts may die."""
    words = ["salloc", "--no-shell", "--quiet", f"--job-name={name}", f"--nodes={len(hosts)}"]
    words += [f"--nodelist={','.join(hosts)}", "--exclusive", "--mem=0", "--no-kill"]
    return [*words, f"--immediate={GRANT_S}", *options]


def agent_step(
    job_id: str,
    hosts: Sequence[str],
    command: Sequence[str],
    env: Sequence[str],
    name: str,
    options: Sequence[str] = (),
    gpus: int = 0,
) -> list[str]:
    """A task on each host that outlives the others. `env`: names of what it has in its environment,
    so that nothing else of the server's gets there; what is secret comes on stdin. `name`: of the
    step; `options`: more of srun. `gpus`: of each host: a step has none of an allocation that is
    exclusive unless it asks for them."""
    words = ["srun", f"--jobid={job_id}", "--overlap", "--no-kill", "--kill-on-bad-exit=0"]
    words += [f"--nodes={len(hosts)}", f"--ntasks={len(hosts)}", "--ntasks-per-node=1"]
    words += [f"--nodelist={','.join(hosts)}", "--input=all", f"--job-name={name}"]
    words += ["--mem=0", "--cpu-bind=none"]  # ranks have all of the host
    if gpus and not any(option.startswith(_GPU_OPTIONS) for option in options):
        words.append(f"--gres=gpu:{gpus}")
    return [*words, f"--export={','.join(env)}", "--chdir=/", *options, *command]


def read_gpus(text: str) -> dict[str, int]:
    """The GPUs of each node in `scontrol show nodes -o`: of Gres=gpu:h100:8(S:0-1),shard:64 it is
    8. Nodes without any are left out."""
    gpus: dict[str, int] = {}
    for row in text.splitlines():
        fields = dict(_NODE_FIELD.findall(row))
        if count := sum(int(number) for number in _GPUS.findall(fields.get("Gres", ""))):
            gpus[fields.get("NodeName", "")] = count
    return gpus


def read_job(row: str) -> SlurmJob:
    """Raises: SlurmFailed."""
    cells = row.strip().split("|", 4)
    if len(cells) != 5:
        raise SlurmFailed(f"squeue: cannot read {row.strip()!r}")
    job_id, state, user, nodes, name = cells
    try:
        hosts = tuple(hostlist.expand(nodes)) if nodes else ()
    except BadInput as error:
        raise SlurmFailed(f"squeue: {error.message}") from None
    return SlurmJob(job_id, state, user, hosts, name)


def own_name() -> str:
    """The user as whom the server calls Slurm."""
    return pwd.getpwuid(os.geteuid()).pw_name
