"""Runs the agent of one host until a signal ends it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from muster.structs import struct
from scheduler.access.addresses import host_and_port
from scheduler.agent.agent import Agent, now_s
from scheduler.agent.place import parse_place
from scheduler.agent.ranks.allow import AllowList, load_allow_list, own_user
from scheduler.agent.session import ServerAddresses, keep_session
from scheduler.client.credentials import Credentials
from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import read_text

_BEFORE_S = 60.0  # for which the agent of the attempt before may take to leave
MOST_TOKENS = 16 << 20  # characters on stdin

log = logging.getLogger("muster.agent")


@struct(frozen=True, slots=True)
class AgentOptions:
    """Options of `muster agent`. `servers`: HOST:PORT where they listen for agents, by commas.
    `name`: the host, as the fabric calls it. `state`: a folder of its own; `%h` in it is the host.
    `join_token_file`: `-` is stdin. `address`: at which other hosts reach this one, "" for the one
    that it has towards the server. `is_local`: end, with all ranks, when the server that started it
    is gone. `linger_s`: for which it stays when it is told to end while ranks run, where they end
    with it as in a pod. `place`, `place_file`: where in the fabric the host is, to join it
    (place.py). `one_attempt`: leave when one is over, as in a step of Slurm; it waits for the agent
    before it to leave."""

    servers: str
    name: str
    state: str
    address: str = ""
    allow_file: str = ""
    join_token_file: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    is_local: bool = False
    linger_s: float = 0.0
    place: str = ""
    place_file: str = ""
    one_attempt: bool = False


def run(options: AgentOptions) -> None:
    """Run until SIGTERM or Ctrl-C; ranks go on for the next agent. Raises: InputError."""
    asyncio.run(_run(options))


async def _run(options: AgentOptions) -> None:
    addresses = tuple(part.strip() for part in options.servers.split(",") if part.strip())
    if not addresses:
        raise InputError(Problem("server", "must name a server, HOST:PORT"))
    token = _join_token(options)
    credentials = Credentials(options.ca, options.certificate, options.key, token)
    servers = ServerAddresses(addresses, credentials)
    allowed = load_allow_list(options.allow_file) if options.allow_file else own_user()
    state = Path(options.state.replace("%h", options.name))
    state.mkdir(parents=True, exist_ok=True)
    if state.stat().st_uid != os.geteuid():
        raise InputError(Problem("state", "belongs to somebody else", str(state)))
    lock = (state / "lock").open("w")
    until_s = now_s() + (_BEFORE_S if options.one_attempt else 0.0)
    while not _is_locked(lock):
        if now_s() >= until_s:
            raise InputError(Problem("state", "another agent uses this folder", str(state)))
        await asyncio.sleep(0.02)
    for address in addresses:
        await servers.channel(address).close()  # what is wrong with certificates is said now
    place = parse_place(options.place, options.place_file)
    agent = Agent(
        options.name, state.resolve(), options.address or own_address_for(addresses[0]), allowed
    )
    agent.place = place
    agent.is_for_one = options.one_attempt
    agent.may_leave_processes = _may_leave_processes(agent, allowed)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def end_when_signalled() -> None:
        await stop.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(options.linger_s):
                await agent.is_idle()

    working: list[asyncio.Task[Any]] = [
        asyncio.create_task(agent.run()),
        asyncio.create_task(keep_session(agent, servers)),
        asyncio.create_task(end_when_signalled()),
    ]
    if options.is_local:
        working.append(asyncio.create_task(agent.has_expired.wait()))
    if options.one_attempt:
        working.append(asyncio.create_task(agent.has_finished.wait()))
    done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
    for task in working:
        task.cancel()
    if options.is_local:
        await agent.end_ranks()
    for task in done:
        if error := task.exception():
            raise error


def _may_leave_processes(agent: Agent, allowed: AllowList) -> bool:
    """Whether nothing but the agent ends the processes of a gang, which could outlive it: there are
    no cgroups, no pod whose first process it is, no step of Slurm for this attempt alone.

    Raises: InputError where it is root, and is not told to do without.
    """
    if agent.has_cgroups or os.getpid() == 1 or agent.is_for_one or allowed.without_cgroups:
        return False
    reason = "this host has no cgroup v2 of the agent's own with cgroup.kill (Linux 5.14)"
    if os.geteuid() == 0 and allowed.users:
        remedy = "`without_cgroups: true` in the allow file runs ranks all the same"
        raise InputError(Problem("", f"{reason}; {remedy}"))
    log.warning("%s: until it boots it starts gangs of one tenant alone", reason)
    return True


def _is_locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _join_token(options: AgentOptions) -> str:
    """The token in the file; `-`: on stdin, where others may be as well. Raises: InputError."""
    if options.join_token_file != "-":
        path = options.join_token_file
        return read_text(path, 4_096).strip() if path else ""
    tokens = sys.stdin.read(MOST_TOKENS).split()
    own = next((token for token in tokens if token.startswith(f"join:{options.name}:")), "")
    if not own:
        reason = f"no join token of {options.name} came on stdin"
        raise InputError(Problem("join-token-file", reason))
    return own


def own_address_for(server: str) -> str:
    """Return the address of this host from which it reaches the server."""
    host, port = host_and_port(server)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, _, _, target = addresses[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return socket.gethostname()


def main() -> None:
    """Run an agent as `python -m scheduler.agent.program JSON`, which is how `--launcher local`
    starts agents."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        run(msgspec.json.decode(sys.argv[1], type=AgentOptions))
    except InputError as error:
        log.error("%s", error)
        sys.exit(2)


if __name__ == "__main__":
    main()
