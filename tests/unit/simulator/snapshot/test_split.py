"""A replay split by a snapshot writes what the whole one writes, to the byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from simulator import beside
from simulator.study.options import Value
from tests.splits import Files, run, split

FABRIC = """\
name: small
kind: roce
gpus_per_host: 2
tiers:
  - {name: zone, count: 2, oversubscription: 4}
  - {name: rack, count: 4}
  - {name: host, count: 2}
"""
TENANTS = """\
default: other
half_life_h: 1
classes:
  spot: {priority: -100, preemptible: true}
preemption: {min_run_s: 60, checkpoint_s: 300, restart_s: 30}
tenants:
  - {name: ann, guaranteed_gpus: 16, weight: 2}
  - {name: other, limit_gpus: 24}
"""
WINDOWS = """\
windows:
  - {name: w, kind: maintenance, hosts: [z0], start: +1h, duration: 1h, leave: requeue}
  - {name: r, kind: reservation, hosts: [z1], start: +3h, duration: 1h, jobs: [large-*]}
"""
FAILURES = (
    "poisson:rate=1500,repair_h=0.5,cause=gpu;weibull:rate=400,shape=0.7,repair_h=1,cause=nic"
)


def jobs() -> Iterator[dict[str, Any]]:
    """60 within some hours: of a size, with a model, elastic, of tenants and classes."""
    random = Random(7)
    at_s = 0.0
    for number in range(60):
        at_s += random.expovariate(1 / 180)
        job: dict[str, Any] = {"submit_s": round(at_s, 3), "run_s": random.randint(20, 2_000)}
        kind = random.randrange(4)
        if kind == 0:
            job |= {"name": f"flat-{number}", "gpus": random.choice([1, 2, 5, 8])}
        elif kind == 1:
            job |= {"name": f"large-{number}", "parallelism": {"tp": 2, "pp": 2, "dp": 4}}
            job |= {"traffic": {"pp": 30, "dp": 100}, "spares": "auto", "priority": 5}
        elif kind == 2:
            job |= {"name": f"elastic-{number}", "parallelism": {"dp": {"min": 4, "max": 12}}}
            job |= {"traffic": {"dp": 10}, "spares": 0}
        else:
            job |= {"name": f"spot-{number}", "parallelism": {"tp": 2, "dp": 3}}
            job |= {"traffic": {"dp": 50}, "spares": 1, "tenant": random.choice(["ann", "other"])}
            job |= {"priority_class": "spot"}
        yield job


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Value]:
    """The options that all have, and the files that they name."""
    folder = tmp_path_factory.mktemp("inputs")
    texts = {"f.yaml": FABRIC, "tenants.yaml": TENANTS, "windows.yaml": WINDOWS}
    texts["t.jsonl"] = "".join(json.dumps(job) + "\n" for job in jobs())
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {
        "trace": str(folder / "t.jsonl"),
        "trace_format": "muster",
        "fabric": str(folder / "f.yaml"),
        "tenants": str(folder / "tenants.yaml"),
        "failures": FAILURES,
    }


def same(options: dict[str, Value], folder: Path, *at_h: float, is_beside: bool = False) -> Files:
    """Certified: what the whole run wrote. `is_beside`: a second process wrote the parts."""
    whole = run(options, folder / "whole")
    parts = split(options, folder / "parts", at_h, is_beside)
    assert whole.keys() == parts.keys()
    for name, content in whole.items():
        assert parts[name] == content, name
    return whole


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    return tmp_path


@pytest.mark.parametrize("policy", ["production", "easy", "fifo", "conservative"])
def test_under_every_policy_with_failures_tenants_and_elastic_jobs(
    policy: str, inputs: dict[str, Value], parts: Path
) -> None:
    found = same({**inputs, "policy": policy, "seed": 2}, parts, 0.31, 2.5)

    totals = json.loads(found["totals.json"])
    assert totals["host_failures"] > 5
    assert policy != "production" or totals["resizes"] > 0
    assert totals["restarts"] > 2


def test_written_by_a_second_process(
    inputs: dict[str, Value], parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "MESSAGE", 50)
    found = same({**inputs, "seed": 2}, parts, 1.7, is_beside=True)

    assert found["events.jsonl"].count(b"\n") > 4 * beside.MESSAGE


def test_with_gangs_sent_away_for_others(inputs: dict[str, Value], parts: Path) -> None:
    found = same({**inputs, "seed": 2}, parts, 1.7)

    assert json.loads(found["totals.json"])["preemptions"] > 0


def test_with_step_times_and_slow_detection(inputs: dict[str, Value], parts: Path) -> None:
    times = "default,detection.default_s=200,checkpoint.interval_s=120"
    found = same({**inputs, "times": times, "seed": 5}, parts, 0.9, 1.0, 4.2)

    assert json.loads(found["totals.json"])["job_s"]["detection"] > 0


def test_with_decisions_that_take_their_time(inputs: dict[str, Value], parts: Path) -> None:
    """Most moments then lie between a decision and its commit."""
    same({**inputs, "decision_s": 45.0}, parts, 0.5, 1.2345, 3.0)


def test_with_windows_and_an_end(inputs: dict[str, Value], parts: Path) -> None:
    folder = Path(str(inputs["fabric"])).parent
    options = {**inputs, "windows": str(folder / "windows.yaml"), "until_h": 4.0}

    found = same(options, parts, 0.99, 1.5, 3.5)

    assert b"WindowOpened" in found["events.jsonl"]


@pytest.mark.parametrize("placement", ["random", "consecutive", "spread"])
def test_with_other_placers(placement: str, inputs: dict[str, Value], parts: Path) -> None:
    same({**inputs, "placement": placement, "attach": "llm"}, parts, 2.0)


def test_a_snapshot_of_what_went_on_is_that_of_the_whole(
    inputs: dict[str, Value], tmp_path: Path
) -> None:
    one, two = tmp_path / "one.snap", tmp_path / "two.snap"
    run(inputs, tmp_path / "a", at_h=2.0, snapshot=one)
    early = tmp_path / "early.snap"
    run(inputs, tmp_path / "b", at_h=1.0, snapshot=early)
    run({}, tmp_path / "c", early, 2.0, two)

    def told(path: Path) -> list[bytes]:
        """The parts; the header has the time that it took."""
        return path.read_bytes().split(b"\n", 2)[2:]

    assert told(one) == told(two)
