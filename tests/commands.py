"""A small fabric, a small job, and what came of a command on them."""

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import typer.testing

from scheduler.cli.program import app
from scheduler.client import connection
from scheduler.files.errors import InputError
from tests.serving import Served

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
#: For files of jobs that have a name, axes and a batch besides.
MODEL = (
    "model: {layers: 32, hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8, vocab: 128256,"
    " sequence: 8192}\nspares: 0\n"
)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Muster = Callable[..., Result]


def invoke(*words: str) -> typer.testing.Result:
    """Run a command in this process, in the present folder, and keep what it raised."""
    return typer.testing.CliRunner().invoke(app, list(words))


async def muster(
    served: Served, *words: str, given: str = "", **environment: str
) -> typer.testing.Result:
    """Run a command at a server of this process. `given`: its standard input."""
    env = {"MUSTER_ADDRESS": served.ready.address, "COLUMNS": "100", **environment}
    run = typer.testing.CliRunner().invoke
    return await asyncio.to_thread(run, app, list(words), env=env, input=given)


def answer(*words: str) -> Any:
    """Return the JSON of a command that must succeed."""
    done = invoke(*words, "--format", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refusal(*words: str) -> str:
    """Return the sentence with which `muster` would refuse a command."""
    error = invoke(*words).exception
    assert isinstance(error, InputError)
    return str(error)


def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of this process call as often as ever where no server answers, with shorter pauses:
    a fifth of a second in all, for two."""
    retries = copy.deepcopy(connection._RETRIES)
    retries["methodConfig"][0]["retryPolicy"] |= {"initialBackoff": "0.02s", "maxBackoff": "0.1s"}
    kept = [option for option in connection._OPTIONS if option[0] != "grpc.service_config"]
    options = (("grpc.service_config", json.dumps(retries)), *kept)
    monkeypatch.setattr(connection, "_OPTIONS", options)
