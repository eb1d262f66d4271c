"""Servers and agents of a lab: as many servers as its plan has, and an agent on each host."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from lab.cluster import AGENT_PORT, PORT, Lab, leave_running, write_allow_file
from lab.database import start_database
from lab.slurm import launcher_options


def serve(
    lab: Lab,
    spec: Path,
    agents: bool,
    lease_s: int = 5,
    options: Sequence[str] = (),
    under: Callable[[str], Sequence[str]] = lambda name: (),
) -> Lab:
    """Start the servers, more than one on PostgreSQL, and an agent on each host.

    `options`: more for `muster serve`; `under`: words before the command of a server. Raises:
    InputError when something does not start.
    """
    options = [*options, *(launcher_options(lab) if lab.slurm else [])]
    several = len(lab.plan.servers) > 1
    store = start_database(lab) if several else f"sqlite:///{lab.folder / 'muster.db'}"
    where = [f"{node.address}:{PORT}" for node in lab.plan.servers]
    lab = lab.changed(servers=",".join(where))
    for node in lab.plan.servers:
        argv = [*under(node.name), sys.executable, "-c"]
        argv += ["from scheduler.cli import main; main()", "serve"]
        argv += [f"--store={store}", f"--fabric={spec}", f"--listen={node.address}:{PORT}"]
        argv += ["--insecure", "--console=off", *options]
        if agents:
            argv += [f"--agents={node.address}:{AGENT_PORT}", f"--agent-lease-s={lease_s}"]
        lab.begin(node.name, argv, partial(_is_serving, lab.folder / f"{node.name}.log"))
    if agents and not lab.slurm:
        _start_agents(lab, ",".join(f"{node.address}:{AGENT_PORT}" for node in lab.plan.servers))
    return lab


def _is_serving(log: Path) -> bool:
    return "muster serves" in log.read_text(errors="replace")


def _start_agents(lab: Lab, servers: str) -> None:
    allow = write_allow_file(lab)
    hosts = [
        {
            **asdict(node),
            "folder": str(lab.folder / "agents" / node.name),
            "groups": lab.own(node.namespace),
        }
        for node in lab.plan.hosts
    ]
    told = json.dumps({"servers": servers, "allow": str(allow), "hosts": hosts})
    argv = [sys.executable, "-m", "lab.agents", told]
    leave_running(lab.start("", argv, lab.folder / "agents.log"))
