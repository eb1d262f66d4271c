"""A lab: its network as a plan, what it cannot break, and steps as programs of its ranks."""

import pytest

from lab.faults import Direction, Fault, add_fault, check_fault, heal, nft_table, rate_lines
from lab.measure import check_over, predict, programs
from lab.plan import LabPlan, commands_of, fitting_scale, plan_lab
from lab.ranks import Piece, RankStep
from lab.slurm import topology_conf
from network.step_tasks import step_tasks
from placement import BadInput
from placement.fabric.reader import from_spec
from placement.workload.parallelism import Parallelism
from placement.workload.request import Collective, Request
from placement.workload.training import Batch
from scheduler.files.errors import InputError
from tests.build import regular

FABRIC = from_spec(
    {
        "name": "small",
        "gpus_per_host": 2,
        "nic_gbps": 10,
        "tiers": [
            {"name": "zone", "count": 2, "oversubscription": 4},
            {"name": "rack", "count": 2, "oversubscription": 2},
            {"name": "host", "count": 2},
        ],
    }
)


@pytest.fixture
def plan() -> LabPlan:
    return plan_lab(FABRIC, 1 / 1000, servers=1)


def test_links_carry_what_the_fabric_states_at_the_scale(plan: LabPlan) -> None:
    rates = {link.name: link.bits_per_s / 1e6 for link in plan.links}
    assert rates["z0-r0-h0"] == pytest.approx(20)
    assert rates["z0-r0"] == pytest.approx(20)  # two hosts at 2:1
    assert rates["z0"] == pytest.approx(20)  # four hosts at 4:1


def test_domains_hang_below_their_parents(plan: LabPlan) -> None:
    rack, zone = plan.link("z1-r0"), plan.link("z1")
    assert rack.bridge == f"d{zone.lower[1:]}"
    assert zone.bridge == "d0"
    assert plan.link("z1-r0-h1").bridge == f"d{rack.lower[1:]}"


def test_slurm_knows_domains_as_switches(plan: LabPlan) -> None:
    rows = topology_conf(plan).splitlines()
    assert rows[0] == "SwitchName=top Switches=z0,z1"
    assert "SwitchName=z1 Switches=z1-r0,z1-r1" in rows
    assert "SwitchName=z1-r1 Nodes=z1-r1-h0,z1-r1-h1" in rows
    assert len(rows) == 7


def test_racks_with_nvlink_have_a_second_network() -> None:
    spec = {
        "name": "nvl",
        "gpus_per_host": 1,
        "nic_gbps": 10,
        "tiers": [
            {"name": "rack", "count": 2, "scale_up": {"gbps_per_gpu": 90}},
            {"name": "host", "count": 2},
        ],
    }
    plan = plan_lab(from_spec(spec), 1 / 1000, servers=0)
    fast = [link for link in plan.links if link.lower == "nvlink"]
    assert [link.bridge for link in fast] == ["s0", "s0", "s2", "s2"]
    assert {link.bits_per_s for link in fast} == {90e6}
    host = next(each for each in commands_of(plan) if each.namespace == "h1")
    assert "addr add 10.89.1.1/16 dev nvlink" in host.ip


def test_every_link_is_shaped_at_both_ends(plan: LabPlan) -> None:
    roots = [line for each in commands_of(plan) for line in each.tc if "root handle" in line]
    assert len(roots) == 2 * len(plan.links)


def test_the_fitting_scale_is_what_two_shapers_of_a_core_carry() -> None:
    assert 0 < fitting_scale(FABRIC) <= 1
    assert plan_lab(FABRIC, fitting_scale(FABRIC), servers=0).scale == fitting_scale(FABRIC)


def test_a_slow_scale_is_refused_with_one_that_works() -> None:
    with pytest.raises(BadInput, match="--scale 1/20000 works"):
        plan_lab(FABRIC, 1e-5, servers=0)
    assert plan_lab(FABRIC, 1 / 20_000, servers=0)


def test_a_large_fabric_is_refused() -> None:
    with pytest.raises(BadInput, match="at most 256"):
        plan_lab(regular(("host", 257)), 1, servers=0)


def test_a_cut_drops_both_directions_and_one_way_drops_one(plan: LabPlan) -> None:
    port = plan.link("z0").port
    both = nft_table(plan, [Fault("z0", loss=1.0)])
    assert f'iifname "{port}" drop' in both
    assert f'oifname "{port}" drop' in both
    up = nft_table(plan, [Fault("z0", direction=Direction.UP, loss=1.0)])
    assert f'iifname "{port}" drop' in up
    assert "oifname" not in up


def test_a_cut_between_sides_names_their_addresses(plan: LabPlan) -> None:
    text = nft_table(plan, [Fault("z0-r0", "server1", Direction.UP)])
    assert "ip saddr { 10.88.1.0, 10.88.1.1 } ip daddr { 10.88.0.1 } drop" in text
    assert text.count("drop") == 1


def test_a_slow_direction_leaves_the_other_at_its_rate(plan: LabPlan) -> None:
    faults = [Fault("z0", direction=Direction.UP, bits_per_s=1e6)]
    _, up, down = rate_lines(plan, "z0", faults)
    assert "rate 1045580bit" in up[0]
    assert "rate 20911602bit" in down[0]


def test_a_new_fault_takes_the_place_of_its_like_and_heal_ends_it(plan: LabPlan) -> None:
    faults = add_fault((), Fault("z0", loss=0.5))
    faults = add_fault(faults, Fault("z0", loss=1.0))
    faults = add_fault(faults, Fault("z0", bits_per_s=2e6))
    assert [fault.loss for fault in faults] == [1.0, 0.0]
    assert heal(faults, "z0") == ()
    assert heal(faults, "z1") == faults


def test_what_a_lab_cannot_break_is_refused(plan: LabPlan) -> None:
    for fault, said in (
        (Fault("z9"), "no host or domain 'z9'"),
        (Fault("z0", bits_per_s=1e9), "0.1 to 20 Mbit/s"),
        (Fault("z0", loss=1.5), "from 0 to 1"),
        (Fault("z0", "z0-r1"), "hosts in common"),
    ):
        with pytest.raises(BadInput, match=said):
            check_fault(plan, fault)


# --- steps as programs of single ranks -----------------------------------------------

LINE = regular(("host", 8), gpus=1)


def test_ranks_send_the_bytes_of_their_edges_and_expect_as_many() -> None:
    sent = (("cp", 4_000_000), ("pp", 800_000), ("dp", 600_000))
    request = Request(Parallelism(cp=2, pp=2, dp=2), sent, batch=Batch(8), compute_s=1.0)
    made = programs(LINE, step_tasks(LINE, request, range(8), 1.0), 1 / 100)
    for program in made:
        out = sum(size for task in program["tasks"] for _, size, _ in task["out"])
        into = sum(size for task in program["tasks"] for _, size, _ in task["in"])
        # A ring's edge, half an edge of a chain in each direction, a ring's edge.
        assert out == pytest.approx(40_000 + 4_000 + 6_000, rel=0.01)
        assert into == pytest.approx(out, rel=0.01)
        assert {key for task in program["tasks"] for key, _, _ in task["out"]} == set(
            program["out"]
        )
        known = {task["id"] for task in program["tasks"]}
        assert all(before in known for task in program["tasks"] for before in task["after"])


@pytest.mark.parametrize("size", [3, 50_000, 50_001])
def test_a_ring_passes_on_no_more_than_came_in_and_never_stops(size: int) -> None:
    key, rounds = "0>1 cp wait", 3
    told = {"id": 0, "seconds": 0.0, "after": [], "out": [(key, size, rounds)], "in": []}
    step = RankStep([{**told, "in": [("2>0 cp wait", size, rounds)]}])
    (piece,), (came,) = step.order[key], step.expected["2>0 cp wait"]
    assert isinstance(piece, Piece)
    assert step.allowed(piece) == size // rounds
    while came.moved < size:
        assert step.allowed(piece) > came.moved or step.allowed(piece) == size
        came.moved = min(size, step.allowed(piece))
    assert step.allowed(piece) == size


def test_gloo_is_refused_where_torch_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.measure.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"over: gloo comes with torch.*pip install torch"):
        check_over("gloo")
    with pytest.raises(InputError, match="over: must be sockets or gloo, not 'mpi'"):
        check_over("mpi")
    check_over("sockets")


def test_a_schedule_sends_the_bytes_of_a_step_and_each_tree_over_connections_of_its_own() -> None:
    request = Request(
        Parallelism(dp=8), (("dp", 7_000_000),), (("dp", Collective.TREE),), compute_s=0.1
    )
    formula_s, simulated_s, tasks = predict(LINE, request, range(8), is_scheduled=True)
    assert formula_s <= simulated_s < 2 * formula_s
    made = programs(LINE, tasks, 1 / 100)
    sent = sum(size for each in made for task in each["tasks"] for _, size, _ in task["out"])
    assert sent == pytest.approx(8 * 70_000, rel=0.01)
    keys = {key for each in made for key in each["out"]}
    assert {key.split()[2] for key in keys} == {"0", "1"}
    assert len(keys) == 2 * 2 * 7
