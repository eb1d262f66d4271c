"""Agents on this machine, one for each host of a small fabric: `muster serve --launcher local`.

Hosts are simulated, ranks are real: processes of this machine, in the folder of their host. One
agent that ends is started again; all end with the server, and their ranks with them.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import pwd
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from scheduler.access.tokens import join_token
from scheduler.agent.program import AgentOptions
from scheduler.launch.substrate import Substrate, write_private
from scheduler.observe.supervision import Heartbeats

MOST_HOSTS = 64
_AGAIN_S = 0.5

log = logging.getLogger("muster.launch")


class LocalAgents(Substrate):
    """Starts agents on this machine, for demonstrations and tests. `folder`: of all of them; kept,
    so that a server that starts again finds what runs."""

    name = "hosts"

    def __init__(self, folder: Path, beats: Heartbeats | None = None) -> None:
        super().__init__(folder, mode=0o711, beats=beats)
        self._fabric_version = 0
        self._hosts: set[str] = set()  # that have an agent
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        user = pwd.getpwuid(os.geteuid()).pw_name
        write_private(
            folder / "allow.yaml", f"users: [{user}]\ndefault_user: {user}\nwithout_cgroups: true\n"
        )

    async def _look(self) -> None:
        """Have an agent for each host, or for the first ones of many: hosts come and go with the
        fabric, and their agents with them."""
        state = self._writer.state
        if state.fabric_version == self._fabric_version:
            return
        self._fabric_version, hosts = state.fabric_version, state.built_fabric.hosts
        if len(hosts) > MOST_HOSTS:
            words = "agents are started for the first %d of %d hosts"
            log.warning(words, MOST_HOSTS, len(hosts))
        wanted = {*hosts[:MOST_HOSTS]}
        for host in self._hosts - wanted:
            self._tasks.drop(f"agent-of-{host}")
            if process := self._processes.pop(host, None):
                with suppress(ProcessLookupError):
                    process.terminate()
        for host in hosts[:MOST_HOSTS]:
            if host not in self._hosts:
                self._tasks.keep(f"agent-of-{host}", partial(self._keep_agent, host))
        self._hosts = wanted

    async def _keep_agent(self, host: str) -> None:
        state = self._folder / host
        state.mkdir(exist_ok=True)
        token = state / "join-token"
        write_private(token, join_token(self.secrets[0], host) + "\n")
        options = AgentOptions(
            self._sessions.address,
            host,
            str(state),
            "127.0.0.1",
            str(self._folder / "allow.yaml"),
            str(token),
            is_local=True,
        )
        while True:
            process = self._processes.get(host)  # of a keeper before this one
            if process is None or process.returncode is not None:
                process = self._processes[host] = await self._start_agent(state, options)
            code = await process.wait()
            log.warning("the agent of %s has ended (%d); starting another one", host, code)
            await asyncio.sleep(_AGAIN_S)

    async def _start_agent(self, state: Path, options: AgentOptions) -> asyncio.subprocess.Process:
        while _is_used(state):  # by an agent that a server before this one has started
            await asyncio.sleep(_AGAIN_S)
        with (state / "agent.log").open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "scheduler.agent.program",
                msgspec.json.encode(options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        (state / "agent.pid").write_text(f"{process.pid}\n", encoding="ascii")
        return process

    async def close(self) -> None:
        """End the agents, and what they run."""
        await super().close()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        ends = [asyncio.create_task(process.wait()) for process in self._processes.values()]
        if ends:
            _, late = await asyncio.wait(ends, timeout=10)
            for process in self._processes.values() if late else ():
                with suppress(ProcessLookupError):
                    process.kill()


def _is_used(state: Path) -> bool:
    """Whether an agent runs in this folder."""
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
