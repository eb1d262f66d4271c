"""A small fabric, a small job, and what came of a command on them."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.client import connection

MINI = """\
name: mini
gpus_per_host: 2
tiers:
  - {name: zone, count: 3, oversubscription: 7}
  - {name: rack, count: 2}
  - {name: host, count: 4}
"""
JOB = """\
name: job
parallelism: {tp: 2, pp: 2, dp: 5}
traffic: {dp: 10, pp: 3}
spares: 1
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Muster = Callable[..., Result]


def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of this process call as often as ever where no server answers, with shorter pauses:
    a fifth of a second in all, for two."""
    retries = copy.deepcopy(connection._RETRIES)
    retries["methodConfig"][0]["retryPolicy"] |= {"initialBackoff": "0.02s", "maxBackoff": "0.1s"}
    kept = [option for option in connection._OPTIONS if option[0] != "grpc.service_config"]
    options = (("grpc.service_config", json.dumps(retries)), *kept)
    monkeypatch.setattr(connection, "_OPTIONS", options)
