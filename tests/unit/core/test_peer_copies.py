"""Where copies of a gang's state lie, and what they outlive."""

from dataclasses import replace
from itertools import combinations

import pytest

from placement.errors import BadInput
from placement.fabric.links import with_links
from placement.fabric.reader import from_spec
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from scheduler.core import State, Tenants, replay
from scheduler.core.model.commands import SubmitJob
from scheduler.core.model.events import Event, GangSwapped, JobStarted
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.job_terms import CheckpointTerms, Holders
from scheduler.core.policies.storage_use import CheckpointSizes, sizes_of
from scheduler.core.policies.tenants import Preemption
from scheduler.core.rules.memory_copies import renewal_shares
from scheduler.core.rules.peer_copies import (
    choose_holders,
    close_copies,
    fatal_domains,
    mend_holders,
    refuse_without_peers,
    renewal_by_uplink,
    renewal_loads,
    restore_source,
    survival,
)
from tests.build import drain, exactly, fabric, fabric_spec, fail, job, loaded, started, submit
from tests.cases import case
from tests.replays import run_script
from tests.unit.core.test_links import trained

EIGHT = fabric(zones=2, racks=4, hosts=2)  # 16 hosts of 8 GPUs


def gang(**axes: int | str) -> Request:
    return Request(Parallelism(**axes))  # type: ignore[arg-type]


def groups_of(request: Request, axis: str, block: int, gpus: int = 8) -> set[int]:
    """Numbers of the groups along `axis` that the block has ranks of."""
    groups = request.parallelism.groups(axis)
    ranks = set(range(block * gpus, (block + 1) * gpus))
    return {i for i, group in enumerate(groups) if len(group) > 1 and ranks & set(group)}


SHAPES = [
    gang(tp=8, pp=2, dp=8),
    gang(tp=8, pp=4, dp=4),
    gang(tp=4, pp=2, dp=16),
    gang(tp=16, pp=2, dp=4),
    gang(tp=2, cp=2, pp=2, dp=16, order="tp-cp-dp-pp"),
    gang(tp=8, ep=2, pp=2, dp=4),
    gang(dp=128),
]


def test_copies_lie_in_other_racks_and_groups() -> None:
    for peers in [1, 2]:
        for request_ in SHAPES:
            with case(peers=peers, request_=request_):
                holders = choose_holders(EIGHT, request_, range(16), peers)
                for block, held in enumerate(holders):
                    assert len(set(held)) == peers
                    assert block not in held
                    for axis in ("tp", "pp"):
                        mine = groups_of(request_, axis, block)
                        assert not any(mine & groups_of(request_, axis, other) for other in held)
                assert close_copies(EIGHT, range(16), holders) == []
                assert ("rack", 8, 0) in fatal_domains(EIGHT, range(16), holders)


def test_feeds_are_kept_apart_where_they_are_known() -> None:
    """Racks of even and odd number hang on two feeds."""
    labels = {f"z{z}-r{r}": {"power": "ab"[r % 2]} for z in range(2) for r in range(4)}
    powered = from_spec({**fabric_spec(zones=2, racks=4, hosts=2), "labels": labels})
    holders = choose_holders(powered, gang(dp=128), range(16), 1)
    assert close_copies(powered, range(16), holders) == []
    assert fatal_domains(powered, range(16), holders)[-1] == ("power", 2, 0)


def test_a_gang_of_one_rack_is_told_so() -> None:
    holders = choose_holders(EIGHT, gang(dp=16), range(2), 1)
    assert holders == ((1,), (0,))
    assert close_copies(EIGHT, range(2), holders) == [0, 1]


def test_one_replica_has_nowhere_to_copy_to() -> None:
    with pytest.raises(BadInput, match="need 2 replicas on hosts of their own"):
        refuse_without_peers(gang(tp=8, pp=16), 8, 1)
    refuse_without_peers(gang(tp=8, pp=8, dp=2), 8, 1)


def test_after_a_move_only_what_is_amiss_changes() -> None:
    """Block 0 moves into the rack of its copy."""
    request, hosts = gang(dp=96), list(range(12))
    before = choose_holders(EIGHT, request, hosts, 1)
    (holder,) = before[0]
    free_beside = hosts[holder] ^ 1
    other = hosts.index(free_beside)
    hosts[0], hosts[other] = hosts[other], 15
    after = mend_holders(EIGHT, request, hosts, 1, before, [0, other])
    assert close_copies(EIGHT, hosts, after) == []
    kept = [b for b in range(12) if after[b] == before[b]]
    assert len(kept) >= 12 - 4


def test_the_first_copy_that_is_left_is_loaded() -> None:
    holders: Holders = ((3, 5), (4,))
    assert restore_source(0, holders, [0]) == 3
    assert restore_source(0, holders, [0, 3]) == 5
    assert restore_source(0, holders, [0, 3, 5]) is None


def _counted(holders: Holders, failed: int) -> float:
    sets = [{b, *held} for b, held in enumerate(holders)]
    trials = [set(trial) for trial in combinations(range(len(holders)), failed)]
    return sum(not any(some <= trial for some in sets) for trial in trials) / len(trials)


def test_survival_of_groups_is_exact() -> None:
    for failed in [0, 1, 2, 3, 4, 5]:
        for peers in [1, 2, 3]:
            with case(failed=failed, peers=peers):
                holders = choose_holders(
                    fabric(zones=1, racks=12, hosts=1), gang(dp=96), range(12), peers
                )
                found = survival(holders, failed)
                assert found.is_exact
                assert found.probability == pytest.approx(_counted(holders, failed))


@pytest.mark.parametrize("failed", [1, 2, 3, 4])
def test_survival_of_rings_is_a_bound(failed: int) -> None:
    holders = choose_holders(fabric(zones=1, racks=11, hosts=1), gang(dp=88), range(11), 1)
    found, counted = survival(holders, failed), _counted(holders, failed)
    assert found.probability <= counted + 1e-12
    assert found.is_exact == (found.probability == 1.0)
    if failed == 2:
        assert found.probability == pytest.approx(counted)


# Of 100 bytes a host, which its NICs send in 2 s.
SIZES = CheckpointSizes(400, 100, 200.0, 50.0)


def test_each_uplink_carries_the_copies_that_leave_its_domain() -> None:
    """Three hosts of z0, of which two share a rack, keep their copies on one of z1."""
    hosts, holders = (0, 1, 2, 8), ((3,), (3,), (3,), (0,))
    found = renewal_by_uplink(EIGHT, hosts, holders, SIZES)
    zone, rack = (tier.uplink_bytes_per_s for tier in EIGHT.tiers)
    assert found == {
        (0, 0): (300, 300 / zone[0]),
        (0, 1): (100, 300 / zone[1]),  # more comes than leaves
        (1, 0): (200, 200 / rack[0]),
        (1, 1): (100, 100 / rack[1]),
        (1, 4): (100, 300 / rack[4]),
    }
    assert renewal_loads(EIGHT, hosts, holders, SIZES) == (
        ("zone", 400, 300 / zone[0]),
        ("rack", 400, 300 / rack[4]),
        ("host", 400, 6.0),
    )


def test_copies_inside_a_domain_do_not_use_its_uplink() -> None:
    assert renewal_by_uplink(EIGHT, (0, 1), ((1,), (0,)), SIZES) == {}
    loads = renewal_loads(EIGHT, (0, 1), ((1,), (0,)), SIZES)
    assert loads == (("zone", 0, 0.0), ("rack", 0, 0.0), ("host", 200, 2.0))


def test_a_renewal_over_a_link_that_is_down_does_not_end() -> None:
    found = renewal_by_uplink(with_links(EIGHT, {"z1": 0}), (0, 8), ((1,), (0,)), SIZES)
    assert found[0, 1] == (100, float("inf"))


# --- gangs with copies in memory -----------------------------------------------------

S = 10**9
FABRIC = fabric(zones=1, racks=4, hosts=2)
RULES = Tenants(preemption=Preemption(costs=Costs(checkpoint_s=100, restart_s=20)))
SAVING = CheckpointTerms(interval_s=1_000, peers=1, peer_interval_s=10)


def asked(checkpoint: CheckpointTerms = SAVING, **job: object) -> SubmitJob:
    command = submit("a", 4, spares=exactly(1), **job)
    return replace(command, spec=replace(command.spec, checkpoint=checkpoint))


def log_of(*script: tuple[int, object]) -> list[Event]:
    timed = [(at * S, command) for at, command in script]
    return run_script(FABRIC, timed, tenants=RULES)  # type: ignore[arg-type]


def swap_of(log: list[Event]) -> GangSwapped:
    return next(event for event in log if isinstance(event, GangSwapped))


def lost_s(state: State) -> float:
    return state.jobs["a"].goodput.time.rework / S


def test_a_start_says_who_has_whose_copy() -> None:
    log = log_of((0, asked()))
    (start,) = (event for event in log if isinstance(event, JobStarted))
    assert len(start.copies) == 4
    assert replay(log).jobs["a"].present.copies == start.copies
    racks = [FABRIC.tiers[1].domain_by_host[FABRIC.index_by_name[h]] for h in start.hosts]
    assert all(racks[b] != racks[held[0]] for b, held in enumerate(start.copies))


def test_a_swap_loads_from_the_host_that_has_the_copy() -> None:
    log = log_of((0, asked()))
    job = replay(log).jobs["a"]
    hosts = [FABRIC.hosts[h] for h in job.hosts]
    log = log_of((0, asked()), (457, fail(hosts[1])))
    (swap,) = swap_of(log).swaps
    assert swap.source == hosts[job.present.copies[1][0]]
    assert lost_s(replay(log)) == 7


def test_without_its_copy_the_gang_goes_back_to_storage() -> None:
    """The host and the one with its copy fail together."""
    log = log_of((0, asked()))
    job = replay(log).jobs["a"]
    hosts = [FABRIC.hosts[h] for h in job.hosts]
    other = hosts[job.present.copies[1][0]]
    script = [(0, asked()), (457 * S, fail(hosts[1])), (457 * S, fail(other))]
    log = run_script(FABRIC, script, tenants=RULES, decision_ns=5 * S)
    swaps = swap_of(log).swaps
    assert len(swaps) == 2
    assert [swap.source for swap in swaps] == ["", ""]
    assert lost_s(replay(log)) == 452


def test_a_host_that_is_left_hands_its_state_over() -> None:
    log = log_of((0, asked()))
    left = FABRIC.hosts[replay(log).jobs["a"].hosts[2]]
    (swap,) = swap_of(log_of((0, asked()), (455, drain(left)))).swaps
    assert swap.source == left


def test_an_interval_of_its_own_goes_before_the_clusters() -> None:
    log = log_of((0, asked(CheckpointTerms(interval_s=30))), (457, fail("z0-r0-h0")))
    assert lost_s(replay(log)) == 457 % 30
    log = log_of((0, asked(CheckpointTerms())), (457, fail("z0-r0-h0")))
    assert lost_s(replay(log)) == 57


def test_running_gangs_load_uplinks_with_the_renewals_that_their_jobs_state() -> None:
    """Half the interval is twice the load. A gang without a model has a state of unknown size."""

    def gang_every(interval_s: int) -> State:
        command = trained("a", 6)
        checkpoint = CheckpointTerms(peers=1, peer_interval_s=interval_s)
        return started(
            loaded(FABRIC), replace(command, spec=replace(command.spec, checkpoint=checkpoint))
        )

    state = gang_every(60)
    gang_, built = job(state, "a"), state.loaded_fabric
    sizes = sizes_of(built, gang_.request)
    assert sizes
    loads = renewal_by_uplink(built, gang_.hosts, gang_.present.copies, sizes)
    shares = renewal_shares(state)
    assert shares == {uplink: seconds / 60 for uplink, (_, seconds) in loads.items()}
    assert {depth for depth, _ in shares} == {1}  # racks of the one zone
    twice = renewal_shares(gang_every(30))
    assert twice == pytest.approx({uplink: 2 * share for uplink, share in shares.items()})
    assert replay(log_of((0, asked()))).jobs["a"].present.copies
    assert renewal_shares(replay(log_of((0, asked())))) == {}
