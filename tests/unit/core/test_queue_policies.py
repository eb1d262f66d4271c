"""Queue policies: those that come with muster, and one that a package adds."""

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from placement import BadInput
from scheduler.core import SchedulingOptions, State, decide
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.plan import Start
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.queue import policies
from scheduler.core.queue.cycle import BACKFILLED
from scheduler.core.queue.policies import queue_policy
from scheduler.core.queue.policies.conservative import CONSERVATIVE, Conservative
from tests.build import fabric, loaded, run, started, submit
from tests.replays import machine, replayed, trace_job

ROOT = Path(__file__).parents[3]
CHAPTER = (ROOT / "docs" / "extending.md").read_text().partition("## Add a queue policy")[2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the package of docs/extending.md, as pip would leave it, and that this
    process finds."""
    ((name, code),) = re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", CHAPTER, re.S)
    (table,) = re.findall(r"```toml\n(.*?)```", CHAPTER, re.S)
    ((group, entries),) = tomllib.loads(table)["project"]["entry-points"].items()
    lines = [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (tmp_path / name).write_text(code)
    info = tmp_path / "shortest_first-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shortest-first\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shortest_first", raising=False)
    for cached in ("_installed", "_plugged"):
        monkeypatch.setattr(policies, cached, getattr(policies, cached).__wrapped__)
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_the_example_of_the_guide_serves_the_shortest_first() -> None:
    """One job holds the machine, then a long one and a short one come."""
    lengths = {"first": 100, "long": 1_000, "short": 10}
    jobs = [trace_job(n, at, s, 4, limit_s=s) for at, (n, s) in enumerate(lengths.items())]
    starts = {p: replayed(machine(4), jobs, p).starts_s() for p in ("easy", "shortest-first")}
    assert starts["easy"] == {"first": 0, "long": 100, "short": 1_100}
    assert starts["shortest-first"] == {"first": 0, "short": 100, "long": 110}


def test_a_name_that_nobody_registers_lists_those_that_are(installed: Path) -> None:
    known = "must be one of production, easy, fifo, conservative, shortest-first"
    with pytest.raises(BadInput, match=f"{known}, not 'lifo'"):
        queue_policy("lifo")
    (installed / "shortest_first.py").write_text("POLICY = 1\n")
    with pytest.raises(BadInput, match="is not a QueuePolicy"):
        queue_policy("shortest-first")
    del sys.modules["shortest_first"]
    (installed / "shortest_first.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(BadInput, match="cannot be loaded"):
        queue_policy("shortest-first")


def test_a_kept_schedule_and_preemption_exclude_each_other() -> None:
    state = loaded(fabric(1, 1, 4))
    policy = replace(CONSERVATIVE, may_preempt=True)
    with pytest.raises(ValueError, match="does not go with preemption"):
        Conservative(policy.context(state, 0, SchedulingOptions(), state.free))


def test_a_job_that_passes_one_that_waits_for_hosts_says_so() -> None:
    def notes(state: State) -> dict[str, bool]:
        starts = [a for a in decide(state, 0, SchedulingOptions()).actions if isinstance(a, Start)]
        return {start.name: BACKFILLED in start.placement.notes for start in starts}

    empty = loaded(fabric(zones=1, racks=1, hosts=4))
    held = started(empty, submit("held", 3, limit_s=7_200))
    wide, small = submit("wide", 4, limit_s=3_600), submit("small", 1, limit_s=60)
    assert notes(run(held, wide, small)) == {"small": True}
    assert notes(run(empty, wide, small)) == {"wide": False}
    assert notes(run(held, small, wide)) == {"small": False}
    limited = Tenants((Tenant("a", limit_gpus=8), Tenant("b")))
    state = run(empty, LoadTenants(limited))
    state = started(state, submit("first", 1, tenant="a"))
    held_back = submit("held-back", 1, tenant="a")
    assert notes(run(state, held_back, submit("other", 1, tenant="b"))) == {"other": False}
    after = started(run(held, wide), small)
    assert BACKFILLED in after.jobs["small"].present.notes
