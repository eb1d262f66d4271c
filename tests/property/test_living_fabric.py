"""Long days of one cluster whose fabric changes while everything else happens.

Hosts, racks and zones come and go, move and get other names between jobs, failures, swaps, windows
and quotas, and plans made on an older fabric come late. What the other machines promise holds as
before; no gang notices; the log gives the same state again.
"""

from random import Random

import pytest

from placement.fabric.tree import Fabric
from scheduler.core import Conflict, JobState, Rejected, State, admit, apply, commit
from scheduler.core.admission.fabric import FabricObstacle, fabric_change
from scheduler.core.fold.apply import effects
from scheduler.core.model.commands import ChangeFabric
from scheduler.core.model.events import Event, FabricChanged, FabricLoaded
from simulator.collectors.invariants import InvariantChecker
from tests.property import constrained, laws
from tests.property import test_everything as everything
from tests.property import window_laws as windows
from tests.seeds import seeds

Tree = dict[str, dict[str, list[str]]]  # zone -> rack -> hosts
LEAST = 8  # hosts from which on some are taken away
RENAMED = ("z0-r1", "z1-r0")  # racks that no window of these days is for


class World(everything.World):
    """`changes`: how many fabrics were taken, `refusals`: how many were not."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.patch = patch
        self.changes = self.refusals = 0
        self.checker = InvariantChecker()

    def record(self, events: tuple[Event, ...]) -> None:
        state = self.state
        for event in events:
            before, state = state, apply(state, event)
            self.checker.feed(event, state)
            if isinstance(event, FabricLoaded | FabricChanged):
                for module in (laws, windows, constrained):
                    self.patch.setattr(module, "FABRIC", state.built_fabric)
                self.patch.setattr(everything, "HOSTS", state.built_fabric.hosts)
            if isinstance(event, FabricChanged):
                self.changes += 1
                check_nobody_noticed(before, event, state)
        super().record(events)

    def act(self, random: Random) -> None:
        super().act(random)
        if random.random() < 0.3:
            self.change(random)

    def change(self, random: Random) -> None:
        """Ask for another fabric; one that is refused is refused for a reason that holds."""
        spec, renames = another(random, self.state.built_fabric)
        command = ChangeFabric(spec, renames)
        change = fabric_change(self.state, command)
        answer = admit(self.state, command, self.now_ns)
        assert isinstance(answer, Rejected) == bool(change.refusals)
        for each in change.refusals:
            if each.obstacle not in (FabricObstacle.GANG, FabricObstacle.SPARE):
                continue
            index = self.state.built_fabric.index_by_name[each.subject]
            assert (self.state.index.held | self.state.index.lent) >> index & 1
        if isinstance(answer, Rejected):
            self.refusals += 1
        else:
            self.record(answer)

    def commit_stale(self) -> None:
        """A plan of an older fabric is refused whole, for its hosts have other numbers."""
        if self.stale and self.stale[-1].version < self.state.fabric_version:
            plan = self.stale.pop()
            answer = commit(self.state, plan, self.now_ns)
            assert isinstance(answer, Conflict) or not plan.actions
            return
        super().commit_stale()


def check_nobody_noticed(before: State, event: FabricChanged, after: State) -> None:
    """Gangs and spares are on the same hosts, hosts are in the same states, and the effect names
    those that came and went."""
    renames = dict(event.renames)
    was, now = before.built_fabric, after.built_fabric
    assert list(after.index.queue) == list(before.index.queue)
    assert (after.index.running, after.index.interrupted) == (
        before.index.running,
        before.index.interrupted,
    )
    for name, job in before.jobs.items():
        assert after.jobs[name].host_names(now) == job.host_names(was)
        assert after.jobs[name].state is job.state
    for job in before.ended.values():
        assert after.ended[job.uid].host_names(now) == job.host_names(was)
    for index, host in before.hosts.items():
        name = renames.get(was.hosts[index], was.hosts[index])
        if name in now.index_by_name:
            assert after.hosts[now.index_by_name[name]] == host
    assert len(after.hosts) <= len(before.hosts)
    names = {renames.get(name, name) for name in was.hosts}
    [change] = effects(before, event, after)
    told = {now.hosts[index] for index in change.indices}
    assert {*now.hosts} - names <= told
    assert {host for host, *_ in change.removed} == {*was.hosts} - {*now.hosts}


def tree_of(fabric: Fabric) -> Tree:
    tree: Tree = {}
    for index, host in enumerate(fabric.hosts):
        zone, rack = fabric.domain(index, 0), fabric.domain(index, 1)
        tree.setdefault(zone, {}).setdefault(rack, []).append(host)
    return tree


def another(
    random: Random, fabric: Fabric
) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """A fabric that differs from this one in one to three ways, in any order of its domains."""
    tree, renames = tree_of(fabric), dict[str, str]()
    for _ in range(random.randint(1, 3)):
        zone = random.choice(list(tree))
        rack = random.choice(list(tree[zone]))
        hosts = tree[zone][rack]
        number = random.randrange(10_000)
        match random.choice(("add", "remove", "remove", "rack", "zone", "name", "move", "rename")):
            case "add":
                hosts.append(f"{zone}-{rack.rpartition('-')[2][:2]}-h{100 + number}")
            case "remove" if sum(len(h) for r in tree.values() for h in r.values()) > LEAST:
                hosts.remove(random.choice(hosts))
            case "rack" if len(tree[zone]) < 4:
                tree[zone][f"{zone}-r{10 + number}"] = [f"{zone}-r{10 + number}-h0"]
            case "zone" if len(tree) < 3:
                tree[f"z{10 + number}"] = {f"z{10 + number}-r0": [f"z{10 + number}-r0-h0"]}
            case "name":
                old = random.choice(hosts)
                hosts[hosts.index(old)] = renames[old] = f"{old}x"
            case "move":
                there = tree[random.choice(list(tree))]
                host = random.choice(hosts)
                hosts.remove(host)
                there[random.choice(list(there))].append(host)
            case _:
                for name in RENAMED:
                    if name in tree[zone]:
                        tree[zone][f"{name}y"] = tree[zone].pop(name)
        tree = {
            z: kept for z, racks in tree.items() if (kept := {r: h for r, h in racks.items() if h})
        }
        if not tree:
            tree = tree_of(fabric)
    present = {host for racks in tree.values() for hosts in racks.values() for host in hosts}
    is_known = {*fabric.hosts}.__contains__
    stated = tuple(
        (o, n) for o, n in renames.items() if n in present and is_known(o) and o not in present
    )
    return spec_of(random, tree), stated


def spec_of(random: Random, tree: Tree) -> dict[str, object]:
    over = random.choice((7, 7, 7, 4))
    zones = list(tree.items())
    random.shuffle(zones)
    return {
        "name": "small",
        "gpus_per_host": 8,
        "nic_gbps": 400,
        "tiers": [{"name": "zone", "oversubscription": over}, {"name": "rack"}, {"name": "host"}],
        "domains": [
            {
                "name": zone,
                "domains": [{"name": rack, "hosts": hosts} for rack, hosts in racks.items()],
            }
            for zone, racks in zones
        ],
    }


def a_day(seed: int, patch: pytest.MonkeyPatch, rounds: int) -> World:
    random, world = Random(seed), World(patch)
    tenants = everything.tenants_of(random)
    while any(tenant.cells for tenant in tenants.tenants):  # which are counted for racks of two
        tenants = everything.tenants_of(random)
    world.load(tenants)
    world.live(random, rounds, kept=0.3, late=0.3)
    return world


@pytest.mark.parametrize("seed", seeds(2, range(2, 10)))
def test_a_long_day_of_a_fabric_that_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_day(seed, monkeypatch, 150)
    assert world.changes > 3
    assert world.refusals > 3
    assert any(job.state is JobState.COMPLETED for job in world.state.ended.values())
    world.calm_down()
    world.check_replay()
