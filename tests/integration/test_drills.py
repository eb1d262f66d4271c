"""Small parts of `make drill-crash-postgres`, `-failover`, `-failures` and `-partition`."""

import os
from pathlib import Path

import pytest

from drills.crash import PostgresDrill
from drills.crash import run as crash
from drills.failover import differences
from drills.failover import run as fail_over
from drills.failures import DEFRAGMENTED, failure_lab, simulated_rate
from drills.partition import AGENT_LEASE_S, partition_lab
from lab.cluster import missing_programs
from tests.e2e.processes import ServerProcess
from tests.postgres import Cluster


@pytest.fixture
def namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("the drill runs as root")
    if lacking := missing_programs():
        pytest.skip(lacking)


@pytest.mark.slow
def test_kills_of_the_server_and_of_the_database_lose_nothing(
    tmp_path: Path, postgres: Cluster
) -> None:
    server = ServerProcess(tmp_path, postgres.new_database())
    found = crash(PostgresDrill(server, 7, every=3), kills=3, seed=7)
    assert (found["database_kills"], bool(found["answered"])) == (1, True)


@pytest.mark.slow
def test_a_leader_that_is_killed_paused_or_cut_off_is_replaced(postgres: Cluster) -> None:
    tally = fail_over(postgres, ["killed", "paused", "cut off"], rounds=1, lease_s=1)
    assert tally.rounds == 3
    assert tally.histories > 50
    assert max(tally.led_s["killed"]) < 20


def test_a_list_has_every_job_of_the_log_also_those_that_the_state_let_go_of() -> None:
    kept, submitted = {"new": 2, "newer": 1}, ["old", "new", "newer"]
    assert differences([("old", 1), ("new", 2), ("newer", 1)], kept, submitted) == []
    assert differences([("new", 1), ("newer", 1), ("newer", 1), ("odd", 1)], kept, submitted) == [
        "job newer is listed 2 times",
        "job old is not listed",
        "job odd is not in the log",
        "job new is in attempt 2, listed in 1",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_gang_is_moved_and_goes_on_where_a_zone_is_made_free() -> None:
    with failure_lab(DEFRAGMENTED) as made:
        found = made.play(DEFRAGMENTED)
        assert found.attempts == found.simulated == 1
        assert len(found.left) == 2
        step = made.step()
        assert made.wait(lambda: made.step() > step)


def test_half_an_uplink_makes_simulated_steps_longer_where_the_gang_crosses_it() -> None:
    inside = ["z0-r0-h0", "z0-r0-h1", "z0-r1-h0"]
    across = [*inside, "z1-r0-h0", "z1-r0-h1"]
    assert simulated_rate(inside, "z1", 0.5) == simulated_rate(inside, "z1", 1.0)
    assert simulated_rate(across, "z1", 0.5) < 0.9 * simulated_rate(across, "z1", 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces", "postgres")
def test_a_gang_steps_on_and_no_write_is_lost_where_agents_and_clients_are_cut_off() -> None:
    with partition_lab(2 * AGENT_LEASE_S) as made:  # a busy machine is late
        agents = made.cut("agents from all servers", 1)
        clients = made.cut("clients from leader", 2)
        promoted = made.cut("database lost, standby promoted", 3)
        refused = made.lose_what_was_not_copied()
    assert agents.calls > 50
    assert agents.gap_s < 2 * AGENT_LEASE_S
    assert agents.resizes > 0
    assert "leads, as others say, and does not answer here" in clients.said
    assert promoted.unanswered == 0
    assert "restore a backup" in refused
