"""The last scene of `make demo`: packets on shaped links, and a cut uplink (docs/lab.md)."""

from __future__ import annotations

from pathlib import Path

from telling import NotAsTold, check, command, heading, say, table

from lab.cluster import up
from lab.faults import Fault
from lab.measure import measure_tasks, refuse_load
from lab.plan import fitting_scale, plan_lab
from network.step_simulation import simulate_step
from network.step_tasks import step_tasks
from placement.fabric import hostset
from placement.fabric.reader import from_spec
from placement.objective.step_time import step_time
from placement.workload.request import Placement
from scheduler.cli.offline.place import cluster_of, place_job
from scheduler.cli.render.place.steps import ways_to_place
from scheduler.cli.render.text import seconds_text
from scheduler.files.errors import InputError
from scheduler.files.inputs import read_job

FABRIC = """\
name: sixteen
gpus_per_host: 1
nic_gbps: 400
tiers:
- {name: zone, count: 2, oversubscription: 16}
- {name: rack, count: 2, oversubscription: 2}
- {name: host, count: 4}
"""
JOB = """\
name: ring
parallelism: {dp: 6}
traffic: {dp: 20000000000}
compute_time_s: 0.3
spares: 0
"""
BUSY = (1, 3, 4, 6, 8)  # hosts that others have: eleven are free, in both zones


def measure_a_placement(folder: Path) -> bool:
    """False, and nothing is told, where this machine makes no namespaces."""
    import yaml

    fabric = from_spec(yaml.safe_load(FABRIC))
    try:
        lab = up(folder / "lab", plan_lab(fabric, fitting_scale(fabric), servers=0))
    except InputError:
        return False
    try:
        heading("9. What a placement is worth, in packets")
        say(
            "Sixteen hosts as network namespaces of this machine, with network cards and uplinks"
            f" shaped to 1/{1 / lab.plan.scale:,.0f} of their rates. Six ranks, one a host, send a"
            " step of data parallelism over plain sockets, where muster places them and on the"
            " first free hosts by name:"
        )
        (folder / "ring.yaml").write_text(JOB)
        command("muster lab up fabric.yaml; muster lab measure ring.yaml")
        job = read_job(str(folder / "ring.yaml"))
        question, found, _ = place_job(job, cluster_of(job, fabric, hostset.of(BUSY)))
        if not isinstance(found, Placement):
            raise NotAsTold(found.reason)
        ways, rows = ways_to_place(question, found, 0), [["placed", "formula", "fluid", "packets"]]
        for way in ("muster", "by name"):
            hosts = ways[way]
            step = step_time(fabric, question.request, hosts)
            fluid = simulate_step(fabric, question.request, hosts, step.compute_s)
            tasks = step_tasks(fabric, question.request, hosts, step.compute_s, merged=False)
            (packets_s,) = measure_tasks(lab, fabric, tasks, 1)
            rows.append([way, *map(seconds_text, (step.seconds, fluid.seconds, packets_s))])
        table(rows, right=(1, 2, 3))
        try:
            refuse_load()
        except InputError:
            say("Other programs keep this machine busy: packets waited for a core as well.")
        zones = fabric.tiers[0]
        inside = set(zones.domain_by_host[list(ways["muster"])].tolist())
        check(len(inside) == 1, "the gang is in several zones")
        name = zones.domains[inside.pop()]
        command(f"muster lab cut {name}")
        cut = lab.with_faults([Fault(name, loss=1.0)])
        tasks = step_tasks(fabric, question.request, ways["muster"], 0.3, merged=False)
        (after_s,) = measure_tasks(cut, fabric, tasks, 1)
        say(
            f"The uplink of {name} is cut, and no packet leaves that zone. The gang that muster"
            f" placed inside steps on, {seconds_text(after_s)} a step. By name it would stand"
            " still: its ring crosses that uplink."
        )
        return True
    finally:
        lab.down()
