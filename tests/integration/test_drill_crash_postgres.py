"""A small part of `make drill-crash-postgres`."""

import pytest

from drills.crash_postgres import drill
from tests.postgres import Cluster


@pytest.mark.slow
def test_kills_of_the_server_and_of_the_database_lose_nothing(postgres: Cluster) -> None:
    found = drill(postgres, kills=3, seed=7, every=3)
    assert found["database_kills"] == 1
    assert found["answered"]
