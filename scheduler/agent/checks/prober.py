"""When a host is probed: as its agent starts, after each job, and now and then while it is idle.

The probe is a process of its own (probe.py), which a driver may hold for ever: nothing else waits
for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from scheduler.v1 import agent_pb2

COMMAND = (sys.executable, "-I", str(Path(__file__).with_name("probe.py")))
LIMIT_S = 60.0  # for a probe

log = logging.getLogger("muster.agent")


class HostProber:
    """`memory`: file of what was read last. `command`: runs a probe, with the number of GPUs and
    `memory` as further arguments."""

    def __init__(self, memory: Path, command: Sequence[str] = COMMAND) -> None:
        self._memory, self._command = memory, command
        self._gpus = 0  # that the host should have
        self._every_s = 0.0  # while the host is idle; 0: it is not probed
        self._due_s = 0.0
        self._is_probing = False
        self._process: asyncio.subprocess.Process | None = None  # the newest, which may hang

    def follow(self, order: agent_pb2.ProbeHost) -> None:
        """Probe as often as the server says from now on."""
        self._every_s, self._gpus = order.every.ToNanoseconds() / 1e9, order.gpus

    def begins(self, now_s: float, *, is_idle: bool) -> bool:
        """Return whether to probe now, and take it as begun. `is_idle`: no ranks are on the host;
        it is due as soon as they have left."""
        if not is_idle:
            self._due_s = 0.0
        if not is_idle or not self._every_s or self._is_probing or now_s < self._due_s:
            return False
        self._is_probing, self._due_s = True, now_s + self._every_s
        return True

    async def probe(self) -> agent_pb2.HostProbed:
        """Return what a probe has read and found, or how it has failed."""
        try:
            if self._process is not None and self._process.returncode is None:
                return _hung("a probe hangs in the kernel since an earlier one: a driver is stuck")
            return await self._run()
        except TimeoutError:
            return agent_pb2.HostProbed(readings=f"the probe has taken longer than {LIMIT_S:g} s")
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the host cannot be probed: %s", error)
            return agent_pb2.HostProbed(readings=f"the probe has failed: {error}")
        finally:
            self._is_probing = False
            if self._process is not None and self._process.returncode is None:
                self._process.kill()

    async def _run(self) -> agent_pb2.HostProbed:
        """Raises: TimeoutError, OSError, ValueError and others where it does not answer as it
        should."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            str(self._gpus),
            str(self._memory),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(LIMIT_S):
            output, errors = await self._process.communicate()
        if self._process.returncode:
            last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise ValueError(last or f"exit code {self._process.returncode}")
        said = json.loads(output)
        findings = [agent_pb2.Finding(**finding) for finding in said["findings"]]
        return agent_pb2.HostProbed(readings=said["readings"], findings=findings)


def _hung(text: str) -> agent_pb2.HostProbed:
    finding = agent_pb2.Finding(signal="predicted-failure", detail=text)
    return agent_pb2.HostProbed(readings=text, findings=[finding])
