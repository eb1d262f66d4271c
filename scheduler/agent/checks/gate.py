"""Gates: programs that tell whether a host is fit, before the ranks of an attempt start there."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scheduler.agent.ranks.allow import AllowList, program
from scheduler.agent.ranks.attempt import SUPERVISOR
from scheduler.agent.ranks.supervisor import TIME_OVER

if TYPE_CHECKING:
    from scheduler.v1 import agent_pb2

MOST_SHOWN = 600  # characters of what a gate has written last
_CHUNK = 4_096


class GateFailed(Exception):
    """A check of the host before the ranks start failed; the text has its last output."""

    def __init__(self, text: str, *, is_of_site: bool) -> None:
        super().__init__(text)
        self.is_of_site = is_of_site


async def pass_gates(
    gates: Iterable[agent_pb2.Gate], order: dict[str, Any], allowed: AllowList, search: str
) -> None:
    """Run the checks that must end well before ranks start, as the user of the ranks, or as the
    agent where the host says so.

    Raises: GateFailed, NotAllowed.
    """
    for gate in gates:
        await run_gate(gate, order, allowed, search)


async def run_gate(
    gate: agent_pb2.Gate, order: dict[str, Any], allowed: AllowList, search: str
) -> str:
    """Run one check and return the last of its output. Raises: GateFailed, NotAllowed."""
    command = list(gate.command)
    path = program(command[0], order["workdir"], search)
    own = {"user": allowed.own_name} if path in allowed.gates and gate.is_of_site else {}
    limit_s = max(1, round(gate.limit.ToNanoseconds() / 1e9))
    on_host = {"command": command, "gate_s": limit_s, "env_from": {}, "container": None}
    code, said = await _run(order | own | on_host)
    if code:
        is_over = code == TIME_OVER
        ended = f"took longer than {limit_s} s" if is_over else f"exited with code {code}"
        text = f"gate {command[0]} {ended}" + (f": {said}" if said else "")
        raise GateFailed(text, is_of_site=gate.is_of_site)
    return said


async def _run(order: dict[str, Any]) -> tuple[int, str]:
    """Return the exit code and what was written last."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        SUPERVISOR,
        "--gate",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={},  # and in the session of the agent: of others it ends what is left
    )
    assert process.stdin is not None
    assert process.stdout is not None
    last = b""
    try:
        process.stdin.write(json.dumps(order).encode())
        process.stdin.close()
        while data := await process.stdout.read(_CHUNK):
            last = (last + data)[-MOST_SHOWN:]
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()  # it ends what it has started
    return code, " / ".join(last.decode("utf-8", "replace").split("\n")).strip(" /")
