"""Queue policies: those that come with muster, and one that a package adds."""

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from placement import BadInput
from scheduler.core import Plan, SchedulingOptions, State, decide
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.plan import Start
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
from scheduler.core.queue import policies
from scheduler.core.queue.cycle import BACKFILLED
from scheduler.core.queue.policies import BUILT_IN, policy_names, queue_policy
from scheduler.core.queue.policies.conservative import CONSERVATIVE, Conservative
from scheduler.core.queue.policies.easy import EASY
from tests.build import HOUR_NS, fabric, loaded, run, started, submit
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


def names_of(plan: Plan) -> tuple[str, ...]:
    return tuple(action.name for action in plan.actions if isinstance(action, Start))


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


def test_those_that_come_with_muster_have_their_own_names() -> None:
    assert set(BUILT_IN) == {"production", "easy", "fifo", "conservative"}
    assert policy_names()[:4] == tuple(BUILT_IN)
    for name in BUILT_IN:
        assert queue_policy(name).name == name
    with pytest.raises(BadInput, match="must be one of production, easy"):
        queue_policy("lifo")


def test_a_kept_schedule_and_preemption_exclude_each_other() -> None:
    state = loaded(fabric(1, 1, 4))
    policy = replace(CONSERVATIVE, may_preempt=True)
    with pytest.raises(ValueError, match="does not go with preemption"):
        Conservative(policy.context(state, 0, SchedulingOptions(), state.free))


@pytest.mark.parametrize(("may_preempt", "begun"), [(False, ()), (True, ("b",))])
def test_any_policy_may_preempt_and_borrow(
    monkeypatch: pytest.MonkeyPatch, may_preempt: bool, begun: tuple[str, ...]
) -> None:
    """EASY by arrival that sends preemptible gangs away: two choices put together."""
    mixed = replace(EASY, name="mixed", may_preempt=may_preempt)
    monkeypatch.setitem(policies.BUILT_IN, "mixed", mixed)
    spot = PriorityClass("spot", -100, is_preemptible=True)
    state = run(
        loaded(fabric(1, 1, 4)), LoadTenants(Tenants((Tenant(DEFAULT_TENANT),), classes=(spot,)))
    )
    state = started(state, submit("a", 4, priority_class="spot"), now_ns=-2 * HOUR_NS)
    plan = decide(run(state, submit("b", 4)), 0, SchedulingOptions(policy="mixed"))
    assert names_of(plan) == begun


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
