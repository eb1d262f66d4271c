"""A small part of `make drill-crash-postgres`."""

from pathlib import Path

import pytest

from drills.crash import PostgresDrill, run
from tests.e2e.processes import ServerProcess
from tests.postgres import Cluster


@pytest.mark.slow
def test_kills_of_the_server_and_of_the_database_lose_nothing(
    tmp_path: Path, postgres: Cluster
) -> None:
    server = ServerProcess(tmp_path, postgres.new_database())
    found = run(PostgresDrill(server, 7, every=3), kills=3, seed=7)
    assert found["database_kills"] == 1
    assert found["answered"]
