"""Commands of Slurm as muster calls them, and how their answers are read.

All are of Slurm 22.05 and later, start without a shell, and need an ordinary user. slurmrestd is
not needed.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from muster.structs import struct
from placement import BadInput
from placement.fabric import hostlist
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.files.errors import InputError
from scheduler.files.health.found import ImportedReport
from scheduler.files.health.slurmnodes import read_nodes
from scheduler.launch.substrate import SubstrateFailed

_PATIENCE_S = 30.0
_JOBS = "%i|%T|%u|%N|%n|%r|%l|%e|%j"  # the name last: it may hold anything
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S+)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)??:(\d+)(?=[,(]|$)")
_GPU_OPTIONS = ("--gres", "--gpus")  # and --gpus-per-node, ...
LEAVE_S = 180  # for which gangs may leave hosts before a reservation, or a limit of time
GRANT_S = 5  # an allocation of idle hosts that is not granted by then is given up

Run = Callable[[Sequence[str]], Coroutine[Any, Any, str]]


class SlurmFailed(SubstrateFailed):
    """A command of Slurm failed; the text is its output."""


@struct(frozen=True, slots=True)
class SlurmJob:
    """A job of Slurm. `hosts`: none while it waits, for the reason `reason` and the hosts
    `requested`. `limit_ns`, `end_ns`: how long it may run and when that is over; None: it has no
    limit."""

    job_id: str
    state: str
    user: str
    hosts: tuple[str, ...]
    name: str
    requested: tuple[str, ...] = ()
    reason: str = ""
    limit_ns: int | None = None
    end_ns: int | None = None

    @property
    def leave_ns(self) -> int | None:
        """Return when gangs leave this allocation, so that its limit kills none; None where it has
        no limit."""
        if self.limit_ns is None or self.end_ns is None:
            return None
        return self.end_ns - min(LEAVE_S * SECOND_NS, self.limit_ns // 4)

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"


@struct(frozen=True, slots=True)
class Partition:
    """Limits of a partition on each allocation; None: it has none."""

    name: str
    most_nodes: int | None = None
    most_ns: int | None = None


@struct(frozen=True, slots=True)
class Reservation:
    """Hosts that Slurm keeps for some of its users. `holders`: users and accounts, as it says."""

    name: str
    hosts: tuple[str, ...]
    start_ns: int
    end_ns: int
    holders: str

    @property
    def text(self) -> str:
        until = datetime.fromtimestamp(self.end_ns // SECOND_NS, UTC).strftime("%FT%TZ")
        return f"reservation {self.name} of {self.holders} until {until}"


async def run_command(words: Sequence[str]) -> str:
    """Run a command and return its output. Raises: SlurmFailed."""
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
    """Runs commands of Slurm. `options`: of salloc, such as a partition."""

    options: tuple[str, ...] = ()
    run: Run = run_command

    async def jobs(self) -> list[SlurmJob]:
        """Return the jobs of all users that wait or hold nodes. Raises: SlurmFailed."""
        states = "PENDING,CONFIGURING,RUNNING,SUSPENDED"
        text = await self.run(["squeue", "-h", "-t", states, "-o", _JOBS])
        return [read_job(row) for row in text.splitlines() if row.strip()]

    async def nodes(self) -> tuple[list[ImportedReport], dict[str, int], dict[str, list[str]]]:
        """Return how Slurm sees its nodes, the GPUs of nodes that have some for it, and the
        partitions of each. Raises: SlurmFailed."""
        text = await self.run(["scontrol", "show", "nodes", "-o"])
        try:
            return read_nodes(text, "scontrol show nodes"), read_gpus(text), read_partitions(text)
        except InputError as error:
            raise SlurmFailed(str(error)) from None

    async def reservations(self) -> list[Reservation]:
        """Return reservations of nodes by others than this server. Raises: SlurmFailed."""
        text = await self.run(["scontrol", "show", "reservations", "-o"])
        own = self.option("reservation").split(",")
        rows = (row for row in text.splitlines() if "ReservationName=" in row)
        return [each for row in rows if (each := read_reservation(row)) and each.name not in own]

    async def partition(self) -> Partition | None:
        """Return the partition of allocations, None where several or none are. Raises:
        SlurmFailed."""
        text = await self.run(["scontrol", "show", "partitions", "-o"])
        own = self.option("partition")
        for row in text.splitlines():
            fields = dict(_FIELD.findall(row))
            if fields.get("PartitionName") == own or (not own and fields.get("Default") == "YES"):
                nodes, most_ns = fields.get("MaxNodes", ""), _span_ns(fields.get("MaxTime", ""))
                most_nodes = int(nodes) if nodes.isdecimal() else None
                return Partition(fields["PartitionName"], most_nodes, most_ns)
        return None

    def option(self, name: str) -> str:
        """Return the value of an option of salloc, "" where it is not given."""
        mark = f"--{name}="
        return next((o.removeprefix(mark) for o in self.options if o.startswith(mark)), "")

    async def end_of(self, job_id: str) -> str:
        """Return how an ended job ended, as far as Slurm still knows. Raises: SlurmFailed."""
        fields = dict(_FIELD.findall(await self.run(["scontrol", "show", "job", "-o", job_id])))
        state, reason = (fields.get(key, "") for key in ("JobState", "Reason"))
        return state if reason in ("", "None") else f"{state} ({reason})"

    async def allocate(self, name: str, hosts: Sequence[str], options: Sequence[str] = ()) -> None:
        """Allocate exactly these hosts, all or none. `options`: more of salloc. Raises:
        SlurmFailed."""
        await self.run(allocation(name, hosts, (*self.options, *options)))

    async def has_pyxis(self) -> bool:
        """Return whether srun starts steps in images. Raises: SlurmFailed."""
        return "--container-image" in await self.run(["srun", "--help"])

    async def cancel(self, job_id: str) -> None:
        """Cancel a job of Slurm. Raises: SlurmFailed."""
        await self.run(["scancel", job_id])


def allocation(name: str, hosts: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the command that allocates hosts without a batch host, so that any of them may
    fail."""
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
    """Return the srun command of a step with a task on each host, in which each task outlives the
    failure of others. `env`: the names of the variables that it gets, so that no other variable of
    the server does; secrets come on stdin. `name`: of the step; `options`: more of srun. `gpus`: of
    each host: a step has none of an allocation that is exclusive unless it asks for them."""
    words = ["srun", f"--jobid={job_id}", "--overlap", "--no-kill", "--kill-on-bad-exit=0"]
    words += [f"--nodes={len(hosts)}", f"--ntasks={len(hosts)}", "--ntasks-per-node=1"]
    words += [f"--nodelist={','.join(hosts)}", "--input=all", f"--job-name={name}"]
    words += ["--mem=0", "--cpu-bind=none"]  # ranks have all of the host
    if gpus and not any(option.startswith(_GPU_OPTIONS) for option in options):
        words.append(f"--gres=gpu:{gpus}")
    return [*words, f"--export={','.join(env)}", "--chdir=/", *options, *command]


def container_options(container: ContainerSpec, workdir: str) -> list[str]:
    """Return the options of pyxis for a step in a container. In the image, pyxis has a # between
    the registry and the rest."""
    image = container.image.removeprefix("docker://")
    registry, slash, rest = image.partition("/")
    if registry == "localhost" or re.search("[.:]", registry):
        image = f"{registry}#{rest}" if slash else image
    mounts = [*([f"{workdir}:{workdir}"] if workdir else []), *container.mounts]
    words = [f"--container-image={image}"]
    return words + ([f"--container-mounts={','.join(mounts)}"] if mounts else [])


def read_gpus(text: str) -> dict[str, int]:
    """Read the GPUs of each node from `scontrol show nodes -o`: 8 from
    Gres=gpu:h100:8(S:0-1),shard:64. Nodes without any are left out."""
    gpus: dict[str, int] = {}
    for name, fields in _node_rows(text):
        if count := sum(int(number) for number in _GPUS.findall(fields.get("Gres", ""))):
            gpus[name] = count
    return gpus


def read_partitions(text: str) -> dict[str, list[str]]:
    """Return the partitions of each node in `scontrol show nodes -o`."""
    return {name: row.get("Partitions", "").split(",") for name, row in _node_rows(text)}


def _node_rows(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The fields of each node before its reason, in which anything may stand."""
    for row in text.splitlines():
        fields = dict(_FIELD.findall(row.partition(" Reason=")[0]))
        yield fields.get("NodeName", ""), fields


def read_reservation(row: str) -> Reservation | None:
    """Read a row of `scontrol show reservations -o`. None: it has no nodes, or its times move with
    the clock. Raises: SlurmFailed."""
    fields = dict(_FIELD.findall(row))
    nodes = fields.get("Nodes", "(null)")
    if nodes == "(null)" or "TIME_FLOAT" in fields.get("Flags", ""):
        return None
    given = (fields.get(key, "(null)") for key in ("Users", "Accounts", "Groups"))
    holders = ", ".join(text for text in given if text != "(null)") or "nobody"
    try:
        hosts = tuple(hostlist.expand(nodes))
        start_ns, end_ns = (_moment_ns(fields[key]) for key in ("StartTime", "EndTime"))
    except (BadInput, KeyError, ValueError) as error:
        raise SlurmFailed(f"scontrol show reservations: cannot read {row!r}: {error}") from None
    return Reservation(fields["ReservationName"], hosts, start_ns, end_ns, holders)


def _moment_ns(text: str) -> int:
    """Slurm's commands write times of the zone in which they run, which is the server's."""
    return int(datetime.fromisoformat(text).timestamp()) * SECOND_NS


def _span_ns(text: str) -> int | None:
    """1-02:00:00 or 2:00, minutes and seconds, as nanoseconds; None of UNLIMITED."""
    days, _, clock = text.rpartition("-")
    parts = ["0", *clock.split(":")][-3:]
    if len(parts) != 3 or not all(part.isdecimal() for part in (days or "0", *parts)):
        return None
    hours, minutes, seconds = (int(part) for part in parts)
    return (((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND_NS


def read_job(row: str) -> SlurmJob:
    """Read one job of Slurm. Raises: SlurmFailed."""
    cells = row.strip().split("|", 8)
    if len(cells) != 9:
        raise SlurmFailed(f"squeue: cannot read {row.strip()!r}")
    job_id, state, user, nodes, wanted, reason, limit, end, name = cells
    limit_ns = _span_ns(limit)
    try:
        hosts = tuple(hostlist.expand(nodes)) if nodes else ()
        requested = tuple(hostlist.expand(wanted)) if wanted and not hosts else ()
        end_ns = _moment_ns(end) if hosts and limit_ns is not None else None
    except BadInput as error:
        raise SlurmFailed(f"squeue: {error.message}") from None
    except ValueError:
        end_ns = None  # N/A
    return SlurmJob(job_id, state, user, hosts, name, requested, reason, limit_ns, end_ns)


def own_name() -> str:
    """Return the user as whom the server calls Slurm."""
    return pwd.getpwuid(os.geteuid()).pw_name
