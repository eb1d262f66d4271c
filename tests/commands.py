"""A small fabric, a small job, and what came of a command on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
