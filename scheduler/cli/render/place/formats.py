"""A placement in the words of what starts the ranks.

Rank r runs in slot r mod G of host r // G, G = GPUs per host: block i is on hosts[i].
Each function gives the lines of one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from re import split, sub

from muster.structs import replace, struct
from scheduler.agent.ranks.order import (
    attempt_variables,
    node_variables,
    role_variables,
    torchrun_variables,
)

MASTER_PORT = 29500  # torch.distributed's own default
PORTS = 100  # attempts take them in turn: a rank of an old one meets nobody
LONGEST_LINE = 100
_DIGITS = r"(\d+)"


@struct(frozen=True, slots=True)
class GangOption:
    """A gang to write files for: host names in block order, and the ranks on each. `attempt`: of a
    live job, from 1. `roles`: of a gang of several, the name and the number of hosts of each."""

    name: str
    hosts: tuple[str, ...]
    spares: tuple[str, ...]
    ranks_per_host: int
    attempt: int = 1
    uid: str = ""
    roles: tuple[tuple[str, int], ...] = ()

    def worlds(
        self, address: Callable[[str], str] = str
    ) -> Iterator[tuple[GangOption, dict[str, str]]]:
        """Yield the gang of each role, whose ranks are a world of their own, with the variables
        that name it; the whole gang where it has no roles. `address`: of a host."""
        if not self.roles:
            yield self, {}
            return
        ends = list(accumulate(count for _, count in self.roles))
        firsts = [end - count for end, (_, count) in zip(ends, self.roles, strict=True)]
        named = zip(self.roles, firsts, strict=True)
        places = ",".join(
            f"{name}={address(self.hosts[first])}:{self.port}" for (name, _), first in named
        )
        for (name, count), first in zip(self.roles, firsts, strict=True):
            part = replace(self, hosts=self.hosts[first : first + count], roles=())
            variables = role_variables(name, first * self.ranks_per_host)
            yield part, {**variables, "MUSTER_ROLES": places}

    def nodes(
        self, address: Callable[[str], str] = str
    ) -> Iterator[tuple[GangOption, int, dict[str, str]]]:
        """Yield of each host in block order the world of its ranks, its number there, and the
        variables that name its role."""
        for world, variables in self.worlds(address):
            for node in range(len(world.hosts)):
                yield world, node, variables

    @property
    def ranks(self) -> Iterator[tuple[int, str, int]]:
        """Yield (rank, host, local rank) in the order of the ranks."""
        for block, host in enumerate(self.hosts):
            for local in range(self.ranks_per_host):
                yield block * self.ranks_per_host + local, host, local

    @property
    def world_size(self) -> int:
        return len(self.hosts) * self.ranks_per_host

    @property
    def port(self) -> int:
        """Port at which the ranks of this attempt meet, on the host of rank 0."""
        return MASTER_PORT + (self.attempt - 1) % PORTS


def host_environment(gang: GangOption, node: int, master: str) -> dict[str, str]:
    """Return the environment of the launcher on the `node`th host: torchrun's options, the
    infrastructure rank of ft_launcher. `master`: address of the first host."""
    nodes, port = len(gang.hosts), str(gang.port)
    return {
        **node_variables(node, gang.ranks_per_host, gang.world_size),
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        **torchrun_variables(node, nodes, gang.ranks_per_host),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
    }


def rendezvous_environment(gang: GangOption, node: int) -> dict[str, str]:
    """Return the environment of the `node`th host of a live job's attempt.

    The variables PET_RDZV_... are for launchers whose own rendezvous gives out ranks. That of
    ft_launcher goes by its infrastructure rank, for which CROSS_SLURM_PROCID has precedence over
    what Slurm sets.
    """
    part, own, role = list(gang.nodes())[node]
    master = part.hosts[0]
    return {
        **role,
        **host_environment(part, own, master),
        **attempt_variables(gang.name, gang.uid, gang.attempt, len(part.hosts)),
        "PET_RDZV_ENDPOINT": f"{master}:{gang.port}",
        "PET_RDZV_ID": f"{gang.uid}.{gang.attempt}",
        "PET_RDZV_CONF": f"is_host={int(own == 0)}",
        "SLURM_PROCID": str(own),
        "CROSS_SLURM_PROCID": str(own),
    }


def hostfile(gang: GangOption) -> Iterable[str]:
    """Write one host a line, in block order."""
    return gang.hosts


def rankfile(gang: GangOption) -> Iterable[str]:
    """Write a rank file of Open MPI: `mpirun --rankfile FILE`."""
    return (f"rank {rank}={host} slot={local}" for rank, host, local in gang.ranks)


def torchrun(gang: GangOption) -> Iterable[str]:
    """Write the command of each host, after its name.

    Static rendezvous: the dynamic ones number hosts by address, not by placement.
    """
    for part, node, role in gang.nodes():
        named = f"env {_assignments(role)} " if role else ""
        yield (
            f"{part.hosts[node]} {named}torchrun --nnodes {len(part.hosts)} --node-rank {node}"
            f" --nproc-per-node {part.ranks_per_host}"
            f" --master-addr {part.hosts[0]} --master-port {part.port}"
        )


def _assignments(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in variables.items())


def env(gang: GangOption) -> Iterable[str]:
    """Yield the environment of each rank (`env://`), with its host."""
    for part, role in gang.worlds():
        common = (
            f"WORLD_SIZE={part.world_size} LOCAL_WORLD_SIZE={part.ranks_per_host}"
            f" MASTER_ADDR={part.hosts[0]} MASTER_PORT={part.port}"
        )
        named = f" {_assignments(role)}" if role else ""
        for rank, host, local in part.ranks:
            yield f"RANK={rank} LOCAL_RANK={local} HOST={host} {common}{named}"


def slurm(gang: GangOption) -> Iterable[str]:
    """Write a SLURM_HOSTFILE: one line a rank, after comments that say how to use it.

    `-N` on the srun would override the arbitrary distribution, so it is on the allocation alone.
    Slurm skips comments; its lines hold 8 KiB, so long ones wrap.
    """
    yield f"# {gang.name!r}: {len(gang.hosts)} hosts, {gang.world_size} ranks."
    yield "# Allocate exactly these hosts; `sed -n 's/^#[$] //p' FILE` prints the commands."
    nodes = f'"{compress(gang.hosts)}"'
    yield from _command(f"sbatch --exclusive -N {len(gang.hosts)} -w {nodes} SCRIPT")
    yield "# Inside the allocation, with FILE this file; never -N here."
    yield from _command(f"SLURM_HOSTFILE=FILE srun -n {gang.world_size} -m arbitrary COMMAND")
    first = 0
    for name, hosts in gang.roles:
        last = first + hosts * gang.ranks_per_host - 1
        yield f"# Role {name}: ranks {first} to {last}."
        first = last + 1
    if gang.spares:
        yield "# Spares, not allocated:"
        yield from (f"#   {line}" for line in _wrapped(compress(gang.spares)))
    for _, host, _ in gang.ranks:
        yield host


def k8s(gang: GangOption) -> Iterable[str]:
    """Write manifests for Kubernetes: a headless service, and a pod for each host in block order,
    for `kubectl apply`.

    Bound by nodeName, so no scheduler moves a rank. torchrun reads its options in PET_.
    """
    name = sub(r"[^a-z0-9-]", "-", gang.name.lower()).strip("-")[:50] or "gang"
    yield f"# {gang.name!r}: {len(gang.hosts)} hosts, {gang.world_size} ranks."
    yield "# Put an image and a command in the places of IMAGE and COMMAND."
    if gang.spares:
        yield f"# Spares: {', '.join(gang.spares)}"
    yield from (
        "apiVersion: v1",
        "kind: Service",
        f"metadata: {{name: {name}}}",
        f'spec: {{clusterIP: "None", selector: {{muster.dev/job: {name}}},'
        " publishNotReadyAddresses: true}",
    )
    pods = {host: f"{name}-{block}.{name}" for block, host in enumerate(gang.hosts)}
    for block, (part, node, role) in enumerate(gang.nodes(pods.__getitem__)):
        host = part.hosts[node]
        env = host_environment(part, node, pods[part.hosts[0]]) | role
        yield from (
            "---",
            "apiVersion: v1",
            "kind: Pod",
            "metadata:",
            f"  name: {name}-{block}",
            f'  labels: {{muster.dev/job: {name}, muster.dev/node-rank: "{block}"}}',
            "spec:",
            f'  nodeName: "{host}"',
            f"  hostname: {name}-{block}",
            f"  subdomain: {name}",
            "  restartPolicy: Never",
            "  tolerations: [{key: muster.dev/managed, operator: Exists}]",
            "  containers:",
            "  - name: rank",
            "    image: IMAGE",
            "    command: [COMMAND]",
            f"    resources: {{limits: {{nvidia.com/gpu: {gang.ranks_per_host}}}}}",
            "    env:",
            *(f'    - {{name: {key}, value: "{value}"}}' for key, value in env.items()),
        )


# What writes the lines of each format.
FILES: dict[str, Callable[[GangOption], Iterable[str]]] = {
    each.__name__: each for each in (hostfile, rankfile, slurm, torchrun, env, k8s)
}


def _command(text: str) -> Iterable[str]:
    *lines, last = _wrapped(text)
    yield from (f"#$ {line}\\" for line in lines)
    yield f"#$ {last}"


def _wrapped(text: str) -> list[str]:
    """Break after commas outside brackets, so that joined lines give `text` again."""
    lines = [""]
    for piece in split(r"(?<=,)(?![^\[]*\])", text):
        if lines[-1] and len(lines[-1]) + len(piece) > LONGEST_LINE:
            lines.append("")
        lines[-1] += piece
    return lines


def compress(hosts: Sequence[str]) -> str:
    """Write host names as ranges that name each of `hosts` once, sorted: `z0-r[000-011]-h[0-1]`.

    The numbers of the names are merged from the last one to the first.
    """
    names = [tuple(split(_DIGITS, host)) for host in sorted(set(hosts))]
    deepest = max((len(name) for name in names), default=0)
    for position in range(deepest - 2, 0, -2):
        names = _merged(names, position)
    return ",".join("".join(name) for name in sorted(names))


def _merged(names: list[tuple[str, ...]], position: int) -> list[tuple[str, ...]]:
    """Join the names that differ in the number at `position` alone."""

    def rest(name: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        return name[:position], name[position + 1 :], len(name[position : position + 1][0])

    short = [name for name in names if len(name) <= position]
    merged = list(short)
    long = sorted((name for name in names if len(name) > position), key=lambda n: (rest(n), n))
    for (before, after, _), group in groupby(long, key=rest):
        ranges = _ranges([name[position] for name in group])
        merged.append((*before, ranges, *after))
    return merged


def _ranges(numbers: list[str]) -> str:
    """Ascending numbers of one width as `[000-003,007]`; a single one stays as it is."""
    if len(numbers) == 1:
        return numbers[0]
    runs = []
    for _, group in groupby(enumerate(numbers), key=lambda item: int(item[1]) - item[0]):
        run = list(map(itemgetter(1), group))
        runs.append(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return f"[{','.join(runs)}]"
