"""A lab of real namespaces: what its links carry, how they are cut, and that nothing stays."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml

from lab import cluster
from lab.cluster import Lab
from lab.database import ask_database, postgres_programs
from lab.faults import Direction, Fault
from lab.limits import limit_hosts
from lab.measure import measure_tasks, refuse_load
from lab.plan import plan_lab
from lab.ranks import Rank
from lab.serving import serve
from lab.slurm import start_slurm
from network.step_simulation import simulate_step
from network.step_tasks import step_tasks
from placement.fabric.reader import from_spec
from placement.objective.cut import egress_by_axis
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from scheduler.files.errors import InputError
from tests.slurm import needs_slurm
from tests.waiting import wait_until

FABRIC = from_spec(
    {
        "name": "four",
        "gpus_per_host": 1,
        "nic_gbps": 20,
        "tiers": [
            {"name": "rack", "count": 2, "oversubscription": 2},
            {"name": "host", "count": 2},
        ],
    }
)
# Sends `size` bytes to a port of a host, and says the seconds until all were read.
SENDER = """
import socket, sys, time
size, address = int(sys.argv[1]), sys.argv[2]
began = time.monotonic()
with socket.create_connection((address, 9000), timeout=5) as s:
    s.sendall(bytes(size))
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
print(time.monotonic() - began)
"""
READER = """
import socket
with socket.create_server(("", 9000)) as s:
    print("reads", flush=True)
    while True:
        taken, _ = s.accept()
        while taken.recv(65536):
            pass
        taken.close()
"""


def lab_with(folder: Path, servers: int = 0) -> Lab:
    """The network alone."""
    try:
        lab = cluster.up(folder, plan_lab(FABRIC, 1 / 1000, servers))
    except InputError as error:
        pytest.skip(str(error))
    (folder / "fabric.yaml").write_text(yaml.safe_dump(FABRIC.spec))
    return lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = lab_with(tmp_path_factory.mktemp("lab"))
    argv = lab.command("r1-h0", [sys.executable, "-c", READER])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reads\n"
        yield lab
        reader.kill()  # a lab is down once all in it are reaped, this one here
    lab.down()


def send(lab: Lab, size: int, timeout_s: float = 20) -> float:
    """Seconds from r0-h0 to r1-h0. Raises: TimeoutExpired; OSError."""
    argv = [sys.executable, "-c", SENDER, str(size), lab.plan.node("r1-h0").address]
    done = subprocess.run(
        lab.command("r0-h0", argv), capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode:
        raise OSError(done.stderr)
    return float(done.stdout)


def test_a_link_carries_no_more_than_its_rate_and_less_when_it_is_slow(lab: Lab) -> None:
    # 1 MB over 20 Mbit/s is 0.4 s, less what bursts and the windows of sockets hold.
    assert 0.3 < send(lab, 1_000_000) < 10
    slow = lab.with_faults([Fault("r0", bits_per_s=2e6, loss=0.01)])
    assert cluster.running(lab.folder).faults == slow.faults
    assert send(slow, 250_000) > 0.75  # 1 s
    slow.with_faults([])
    with pytest.raises(InputError, match="has a lab that runs"):
        cluster.up(lab.folder, lab.plan)


@pytest.mark.parametrize(
    "fault", [Fault("r1-h0", direction=Direction.UP, loss=1.0), Fault("r0-h0", "r1")]
)
def test_nothing_passes_a_cut_until_it_is_healed(lab: Lab, fault: Fault) -> None:
    cut = lab.with_faults([fault])
    with pytest.raises((OSError, subprocess.TimeoutExpired)):
        send(cut, 1, timeout_s=0.5)
    assert send(cut.with_faults([]), 1) < 10


def crossed(lab: Lab, name: str) -> int:
    """Bytes that went up a link so far, as the kernel counts them."""
    said = lab.run("", ["ip", "-s", "-j", "link", "show", lab.plan.link(name).port])
    return int(json.loads(said)[0]["stats64"]["rx"]["bytes"])


@pytest.mark.parametrize(
    "over",
    [
        "sockets",
        pytest.param(
            "gloo",
            marks=pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
        ),
    ],
)
def test_ranks_send_what_is_counted_and_no_faster_than_fluid(lab: Lab, over: str) -> None:
    traffic = (("dp", 600_000_000),)
    request = Request(Parallelism(dp=4), traffic, compute_s=0.05)
    before = crossed(lab, "r0")
    tasks = step_tasks(FABRIC, request, range(4), 0.05, merged=False)
    steps = measure_tasks(lab, FABRIC, tasks, steps=2, over=over)
    fluid = simulate_step(FABRIC, request, range(4), 0.05).seconds
    assert len(steps) == 2
    assert over == "sockets" or (lab.folder / "step.store").exists()  # by which gloo meets
    # A busy machine is slower than its links, never faster.
    assert all(0.97 * fluid < seconds < 10 * fluid for seconds in steps)
    sent = next(iter(egress_by_axis(request, 1, np.array([0, 0, 1, 1]), 2)))[1][0] * 3 / 1_000
    # Headers of full packets are 4.6 %, acknowledgements of what comes down 2 to 5 %; gloo says of
    # each message that it is ready.
    assert sent < crossed(lab, "r0") - before < 1.15 * sent


def test_ranks_that_compute_take_a_core_if_they_are_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lab.ranks.FIRST_PORT", 0)
    task = {"id": 0, "seconds": 0.3, "after": [], "out": [], "in": []}
    taken_s = []
    for is_busy in (False, True):
        rank = Rank({"rank": 0, "out": {}, "in": {}, "tasks": [task]}, [], is_busy)
        began_s = time.process_time()
        assert rank.step() >= 0.3
        taken_s.append(time.process_time() - began_s)
        rank._listener.close()
        rank._selector.close()
    assert taken_s[1] > 3 * taken_s[0]


def leftovers(lab: Lab) -> list[str]:
    """Processes that still are in the lab's networks."""
    networks = os.readlink("/proc/self/ns/net")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns/net") != networks and f"{lab.folder}" in (
                folder / "cmdline"
            ).read_text(errors="replace"):
                found.append(folder.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("end", [Lab.down, lambda lab: os.kill(lab.keeper, signal.SIGKILL)])
def test_nothing_is_left_when_the_keeper_ends(tmp_path: Path, end: Callable[[Lab], None]) -> None:
    lab = lab_with(tmp_path)
    sleeper = lab.start("r0-h0", ["sleep", "600"], tmp_path / "sleep.log")
    end(lab)
    assert sleeper.wait(timeout=10) != 0
    assert not leftovers(lab)
    wait_until(lambda: not lab.is_running)  # the keeper ends last, after its namespace's processes
    with pytest.raises(InputError, match="no lab runs"):
        cluster.running(tmp_path)
    again = cluster.up(tmp_path, lab.plan)  # the folder of a lab that ended serves once more
    again.down()


def run_a_gang(lab: Lab) -> None:
    """Submit a gang of four hosts from the client's, until it has completed."""
    job = lab.folder / "job.json"
    job.write_text(
        "name: gang\nparallelism: {dp: 4}\ntraffic: {dp: 1}\nspares: 0\n"
        "run:\n  command: [cat, /proc/net/fib_trie]\n  workdir: /\n"
    )
    command = [sys.executable, "-c", "from scheduler.cli import main; main()"]

    def muster(*words: str) -> str:
        argv, env = lab.command("client", [*command, *words]), lab.environment()
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    said = muster("submit", str(job))
    assert "completed" in (said := muster("wait", "gang", "--timeout", "300s")), said


@pytest.mark.skipif(postgres_programs() is None, reason="PostgreSQL is not installed")
def test_servers_of_a_lab_share_a_database_that_copies_what_it_acknowledges(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, servers=2)
    try:
        run_a_gang(serve(lab, tmp_path / "fabric.yaml", agents=True))
        query = "SELECT application_name, sync_state FROM pg_stat_replication"
        assert ask_database(lab, "database", query) == "standby|sync\n"
    finally:
        lab.down()


@needs_slurm
@pytest.mark.slow
def test_a_slurm_of_the_hosts_starts_their_agents_on_the_lab_s_own_network(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, servers=1)
    try:
        lab = start_slurm(lab, FABRIC)
        assert "MUSTER_CA" not in lab.environment(), "no server has one yet"
        lab = serve(lab, tmp_path / "fabric.yaml", agents=True)
        run_a_gang(lab)
        said = lab.run("client", ["env", f"SLURM_CONF={lab.slurm}", "sinfo", "-h", "-o", "%D"])
        assert said == "4\n"
    finally:
        lab.down()


def test_a_host_has_the_cores_and_the_memory_that_it_is_given(tmp_path: Path) -> None:
    lab = lab_with(tmp_path)
    try:
        lab = limit_hosts(lab, cores=0.5, memory_mb=200)
    except InputError as error:
        pytest.skip(str(error))
    base = lab.groups[0]
    try:
        assert f"muster-lab-{lab.keeper}/h0" in lab.run("r0-h0", ["cat", "/proc/self/cgroup"])
        with pytest.raises(OSError, match="python"):  # it is killed
            lab.run("r0-h0", [sys.executable, "-c", "bytearray(400_000_000)"])
    finally:
        cluster.running(tmp_path).down()
    assert not Path(base).exists()


def test_a_lab_of_another_process_of_the_same_number_is_not_killed(tmp_path: Path) -> None:
    plan = plan_lab(FABRIC, 1 / 1000, servers=0)
    me = Lab(tmp_path, plan, os.getpid(), cluster._born(os.getpid()))
    assert me.is_running
    assert not replace(me, born=me.born - 1).is_running


def test_a_busy_machine_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0 * (os.cpu_count() or 1), 0.0, 0.0))
    with pytest.raises(InputError, match="the machine is busy"):
        refuse_load()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    refuse_load()
