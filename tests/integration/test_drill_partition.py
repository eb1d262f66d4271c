"""A small part of `make drill-partition`, where namespaces and PostgreSQL can be had."""

import os

import pytest

from drills.partition import AGENT_LEASE_S, partition_lab
from lab.cluster import missing_programs
from tests.postgres import NoPostgres, binaries


@pytest.mark.slow
def test_a_gang_steps_on_and_no_write_is_lost_where_agents_and_clients_are_cut_off() -> None:
    if os.geteuid() != 0:
        pytest.skip("the drill runs as root")
    if lacking := missing_programs():
        pytest.skip(lacking)
    try:
        binaries()
    except NoPostgres as error:
        pytest.skip(str(error))
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
