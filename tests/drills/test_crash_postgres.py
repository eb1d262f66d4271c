"""A small part of `make drill-crash-postgres`."""

from __future__ import annotations

from tests.drills.crash_postgres import drill
from tests.postgres import Cluster


def test_kills_of_the_server_and_of_the_database_lose_nothing(postgres: Cluster) -> None:
    found = drill(postgres, kills=4, seed=7, every=2)
    assert found["database_kills"] == 2
    assert found["answered"]
