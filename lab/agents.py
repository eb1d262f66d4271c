"""Agents of all hosts of a lab, forked from one process that has imported what they need.

`python -m lab.agents JSON` runs in the keeper's namespaces. It moves each child to the network of
its host, and starts agents that ended again; it and they end with the keeper.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from lab.keeper import enter_network
from scheduler.agent.program import AgentOptions, run
from scheduler.files.errors import InputError

AGAIN_S = 1.0


def _start(host: dict[str, Any], servers: str, allow: str) -> int:
    """Fork the agent of a host. Returns its process number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        folder = Path(host["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        for group in host["groups"]:
            Path(group, "cgroup.procs").write_text("0", encoding="ascii")
        enter_network(f"/run/netns/{host['namespace']}")
        out = os.open(folder / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        (folder / "agent.pid").write_text(f"{os.getpid()}\n", encoding="ascii")
        run(AgentOptions(servers, host["name"], str(folder), host["address"], allow))
        code = 0
    except InputError as error:
        logging.getLogger("muster.lab").error("%s", error)
    finally:
        os._exit(code)


def main() -> None:
    """Run an agent for each host, and start it again when it ends."""
    told = json.loads(sys.argv[1])
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s: %(message)s")
    hosts = {_start(host, told["servers"], told["allow"]): host for host in told["hosts"]}
    while hosts:
        ended, _ = os.wait()
        host = hosts.pop(ended)
        time.sleep(AGAIN_S)
        hosts[_start(host, told["servers"], told["allow"])] = host


if __name__ == "__main__":
    main()
