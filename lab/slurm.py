"""A Slurm of the hosts of a lab: slurmctld beside the client, a slurmd on each host.

Debian's packages slurmctld, slurmd and slurm-client, with munge.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from lab.cluster import AGENT_PORT, Lab, refuse, write_allow_file
from lab.plan import CLIENT, LabPlan
from placement.fabric.tree import Fabric
from scheduler.access.certificates import SERVER, issue, make_ca

PROGRAMS = ("slurmctld", "slurmd", "srun", "salloc", "munged", "munge")
PORT = 6817  # of slurmctld; slurmd takes the next

_CONF = """\
ClusterName=muster
SlurmctldHost={controller}
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
TopologyPlugin=topology/tree
ReturnToService=2
SlurmdTimeout=60
SlurmdParameters=config_overrides
KillWait=2
UnkillableStepTimeout=5
GresTypes=gpu
NodeName=DEFAULT CPUs=8 RealMemory=1000 State=UNKNOWN
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_slurm() -> str:
    """Say why Slurm cannot be run here; "" where it can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        packages = "slurmctld slurmd slurm-client munge"
        return f"a Slurm needs {', '.join(absent)}: apt-get install {packages}"
    return "" if os.geteuid() == 0 else "the daemons of Slurm need root"


def slurm_conf(folder: Path, controller: str, port: int, munge: str, nodes: Sequence[str]) -> str:
    """Return the text of slurm.conf. `nodes`: its lines of nodes."""
    rows = "\n".join(nodes)
    return _CONF.format(folder=folder, controller=controller, port=port, munge=munge, nodes=rows)


def topology_conf(plan: LabPlan) -> str:
    """Return the text of topology.conf: a switch for each domain, and one above all."""
    names, below = {"d0": "top"}, dict[str, tuple[str, list[str]]]()
    for link in plan.links:
        if not link.node:
            names[f"d{link.lower[1:]}"] = link.name
        if not link.node or (link.node[0] == "h" and link.lower == "nic"):
            kind = "Nodes" if link.node else "Switches"
            below.setdefault(link.bridge, (kind, []))[1].append(link.name)
    rows = [f"SwitchName={names[at]} {kind}={','.join(of)}" for at, (kind, of) in below.items()]
    return "\n".join(rows) + "\n"


def start_slurm(lab: Lab, fabric: Fabric) -> Lab:
    """Start all daemons of Slurm. Raises: InputError."""
    folder, munge = lab.folder / "slurm", "/run/munge"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    hosts = lab.plan.hosts
    gpus = fabric.by_host.gpus.tolist()
    rows = [
        f"NodeName={node.name} NodeHostname={node.name} NodeAddr={node.address} Port={PORT + 1}"
        f" Gres=gpu:{count}"
        for node, count in zip(hosts, gpus, strict=True)
    ]
    at = lab.plan.node(CLIENT)
    controller = f"{socket.gethostname()}({at.address})"
    conf = folder / "slurm.conf"
    conf.write_text(slurm_conf(folder, controller, PORT, f"{munge}/socket", rows))
    for number in range(max(gpus)):
        (folder / f"gpu{number}").touch()  # what stands for a device
    own = [
        f"NodeName={n.name} Name=gpu File={folder}/gpu[0-{count - 1}]\n"
        for n, count in zip(hosts, gpus, strict=True)
    ]
    (folder / "gres.conf").write_text("".join(own))
    (folder / "topology.conf").write_text(topology_conf(lab.plan))
    try:
        lab.run("", ["mkdir", "-m", "755", munge])
        lab.run("", ["dd", "if=/dev/urandom", f"of={munge}/key", "bs=128", "count=1"])
        lab.run("", ["chmod", "400", f"{munge}/key"])
        own = [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")]
        lab.run("", ["munged", "--force", f"--socket={munge}/socket", *own])
        lab.run(CLIENT, ["env", f"SLURM_CONF={conf}", "slurmctld", "-f", str(conf)])
        for node in hosts:
            (folder / "spool" / node.name).mkdir()
            lab.run(node.name, ["slurmd", "-f", str(conf), "-N", node.name])
    except OSError as error:
        lab.down()
        raise refuse(f"Slurm does not start: {error}", "slurm") from None
    return lab.changed(slurm=str(conf))


def launcher_options(lab: Lab) -> list[str]:
    """Write the files with which servers run gangs by this Slurm, and return their options. Agents
    that Slurm starts send a token, so servers need a certificate."""
    path, tls, now = lab.folder / "muster.yaml", lab.folder / "tls", datetime.now(UTC)
    addresses = [node.address for node in lab.plan.servers]
    tls.mkdir()
    make_ca(tls, now)
    issue(tls, SERVER, addresses, 1, now, replace=False)
    own = {
        "server": ",".join(f"{address}:{AGENT_PORT}" for address in addresses),
        "ca": lab.ca,
        "state": str(lab.folder / "agents" / "%h"),
        "allow": str(write_allow_file(lab)),
        "muster": str(Path(sys.executable).with_name("muster")),
    }
    pair = {"certificate": str(tls / f"{SERVER}.pem"), "key": str(tls / f"{SERVER}.key")}
    secret = tls / "join"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(), encoding="ascii")
    told = {"launcher": "slurm", "slurm": own, "tls": pair, "agents": {"join_secret": str(secret)}}
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return [f"--config={path}"]
