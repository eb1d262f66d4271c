"""Quotas of tenants: what limits leave, what is guaranteed, and the same of hosts of one kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from placement.fabric.hostset import HostSet
from placement.fabric.reader import from_spec
from scheduler.core import State, explain
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.policies.tenants import (
    GuaranteedCell,
    KindQuota,
    Preemption,
    PriorityClass,
    Tenant,
    Tenants,
)
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.tenancy import guarantees
from scheduler.core.tenancy.guarantees import highest, withhold_for_cells
from scheduler.core.tenancy.quota import UNLIMITED, QuotaBook, nodes
from scheduler.core.tenancy.standing import standings
from scheduler.files.errors import InputError
from scheduler.files.tenants import load_tenants
from tests.build import (
    end,
    fabric,
    fabric_spec,
    flat,
    hosts_of,
    job,
    loaded,
    refused,
    run,
    running,
    schedule,
)
from tests.build import submit as submit_job

EIGHT = fabric(2, 2, 2)  # 8 hosts of 8 GPUs


def book(*tenants: Tenant, **held: int) -> QuotaBook:
    return QuotaBook(nodes(Tenants(tenants), EIGHT), held)


def test_gpus_that_fill_no_host_do_not_count() -> None:
    found = nodes(Tenants((Tenant("a", guaranteed_gpus=23, limit_gpus=31),)), EIGHT)["a"]
    assert (found.guaranteed, found.limit) == (2, 3)
    assert nodes(Tenants(), EIGHT)["default"].limit == UNLIMITED


def test_a_parent_is_guaranteed_what_its_children_are() -> None:
    tenants = (
        Tenant("a"),
        Tenant("b", "a", guaranteed_gpus=16),
        Tenant("c", "a", cells=(GuaranteedCell("rack", 1),)),
    )
    assert nodes(Tenants(tenants), EIGHT)["a"].guaranteed == 4


def test_the_tightest_limit_of_the_path_counts() -> None:
    found = book(Tenant("a", limit_gpus=32), Tenant("b", "a", limit_gpus=24), Tenant("c", "a"), c=2)
    assert found.headroom("b") == (2, "a")
    found.take("c", -1)
    assert found.headroom("b") == (3, "a")
    found.take("c", -1)
    assert found.headroom("b") == (3, "b")


def test_promises_shrink_with_what_is_held_and_never_below_those_of_children() -> None:
    found = book(
        Tenant("a", guaranteed_gpus=32), Tenant("b", "a"), Tenant("c", "a", guaranteed_gpus=16)
    )
    assert found.promised == 4
    found.take("b", 1)
    assert found.promised == 3
    found.take("b", 5)
    assert found.promised == 2  # c's own, whatever b holds


def test_what_the_own_path_covers() -> None:
    found = book(
        Tenant("a", guaranteed_gpus=32),
        Tenant("b", "a", guaranteed_gpus=8),
        Tenant("c", "a", guaranteed_gpus=16),
        Tenant("d", guaranteed_gpus=16),
    )
    # one of b's own, and one of the four of a that neither b nor c is promised
    assert [found.covered("b", hosts) for hosts in (0, 1, 2, 3, 8)] == [0, 1, 2, 2, 2]


@pytest.mark.parametrize(("free", "most"), [(8, 5), (6, 3), (4, 2), (3, 2), (1, 1), (0, 0)])
def test_the_most_that_leaves_the_promises_to_others(free: int, most: int) -> None:
    """Two are promised to itself, three to others."""
    found = book(Tenant("a", guaranteed_gpus=16), Tenant("b", guaranteed_gpus=24))
    assert found.max_grant("a", free) == most


@pytest.mark.parametrize(
    ("tenants", "field", "message"),
    [
        ((Tenant("a", guaranteed_gpus=72),), "tenants", "guarantee 72 GPUs; small has 64"),
        (
            (Tenant("a", guaranteed_gpus=16, limit_gpus=8),),
            "tenants.a.limit_gpus",
            "8 GPUs is below the guarantee of 16",
        ),
        (
            (Tenant("a", guaranteed_gpus=8), Tenant("b", "a", guaranteed_gpus=16)),
            "tenants.a.guaranteed_gpus",
            "8 GPUs; its cells or its sub-tenants have 16",
        ),
        ((Tenant("a", cells=(GuaranteedCell("pod", 1),)),), "tenants.a.cells", "no tier 'pod'"),
        ((Tenant("a", cells=(GuaranteedCell("rack", 5),)),), "tenants.a.cells", "has no 5 racks"),
        (
            (Tenant("a", cells=(GuaranteedCell("rack", 1, 3),)),),
            "tenants.a.cells",
            "racks of 3 hosts",
        ),
        (
            (
                Tenant("a", cells=(GuaranteedCell("zone", 1, 3),)),
                Tenant("b", cells=(GuaranteedCell("zone", 1, 3),)),
                Tenant("c", cells=(GuaranteedCell("rack", 1),)),
            ),
            "tenants.c.cells",
            "no room for them after those",
        ),
    ],
)
def test_what_cannot_be_guaranteed_is_refused(
    tenants: tuple[Tenant, ...], field: str, message: str
) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        guarantees.check(Tenants(tenants), EIGHT)
    assert refused.value.field == field


def kept(tenant: Tenant, free: list[int], held: list[int] | None = None) -> list[int]:
    """Hosts kept for `tenant` that holds `held`."""
    tenants = Tenants((tenant,))
    found = withhold_for_cells(
        tenants,
        EIGHT,
        nodes(tenants, EIGHT),
        {tenant.name: hostset.of(held or [])},
        hostset.of(free),
    )
    return hostset.members(found[tenant.name])


RACK = Tenant("a", cells=(GuaranteedCell("rack", 1),))
ZONE = Tenant("a", cells=(GuaranteedCell("zone", 1, 3),))


def test_a_whole_rack_is_kept_whole() -> None:
    assert kept(RACK, [0, 2, 3, 5, 6]) == [2, 3]


def test_a_share_of_a_zone_is_kept_where_least_is_free_besides() -> None:
    assert kept(ZONE, [0, 1, 2, 3, 5, 6, 7]) == [5, 6, 7]


def test_what_its_tenant_holds_is_part_of_the_cell() -> None:
    assert kept(RACK, [1, 2, 3], held=[0]) == [1]
    assert kept(RACK, [2, 3], held=[0, 1]) == []


def test_no_more_is_kept_than_the_guarantee_leaves() -> None:
    assert kept(RACK, [2, 3, 4, 5], held=[0, 6]) == []


def test_a_cell_that_is_nowhere_whole_is_kept_where_it_fills_up_first() -> None:
    assert kept(ZONE, [0, 5, 6]) == [5, 6]


def test_two_cells_are_in_two_domains() -> None:
    assert kept(Tenant("a", cells=(GuaranteedCell("zone", 2, 1),)), [0, 1, 4, 5]) == [1, 5]


def test_whole_domains_of_unequal_size_count_as_the_smallest() -> None:
    tenants = Tenants((Tenant("a", cells=(GuaranteedCell("rack", 1),)),))
    assert nodes(tenants, flat(4, 2))["a"].guaranteed == 2


@pytest.mark.parametrize("count", range(6))
def test_highest(count: int) -> None:
    assert hostset.members(highest(0b1011010, count)) == [1, 3, 4, 6][max(0, 4 - count) :]


class Counted(tuple[Tenant, ...]):
    """Tenants that count how often somebody goes through them."""

    passes = 0

    def __iter__(self) -> Iterator[Tenant]:
        self.passes += 1
        return super().__iter__()


def test_quotas_are_checked_in_passes_that_do_not_grow_with_the_tenants() -> None:
    """Not once for each: 10,000 tenants took six seconds, longer than the lease of a leader."""
    tenants = Counted(Tenant(f"t{n}", f"t{n // 10}" if n else "") for n in range(100))
    guarantees.check(Tenants(tenants), EIGHT)
    nodes(Tenants(tenants), EIGHT)
    assert tenants.passes < 20


# --- quotas on hosts of one kind -------------------------------------------------


# Two zones of four hosts: z0 is of H100s, z1 of A100s.
MIXED = from_spec(fabric_spec() | {"labels": {"z0": {"gpu": "h100"}, "z1": {"gpu": "a100"}}})
GPUS = 8
H100 = (("gpu", "h100"),)
ON_H100 = Constraints(labels=H100)
ON_A100 = Constraints(labels=(("gpu", "a100"),))
LIMITED = Tenants((Tenant("lab", kinds=(KindQuota(H100, limit_gpus=2 * GPUS),)), Tenant("shop")))
SPOT = PriorityClass("spot", -10, is_preemptible=True)
OWED = Tenants(
    (Tenant("lab", kinds=(KindQuota(H100, guaranteed_gpus=3 * GPUS),)), Tenant("shop")),
    classes=(SPOT,),
    preemption=Preemption(min_run_s=0),
)


def mixed(tenants: Tenants) -> State:
    return run(loaded(MIXED), LoadTenants(tenants))


def h100s(hosts: tuple[str, ...]) -> int:
    return sum(host.startswith("z0") for host in hosts)


def why(state: State, name: str) -> tuple[WaitReason, str]:
    reason = explain(state, name, 0, SchedulingOptions())
    return reason.cause, reason.sentence


def test_a_tenant_holds_no_more_of_a_kind_than_its_limit() -> None:
    state = mixed(LIMITED)
    for name in ("a", "b", "c"):
        state = run(state, submit_job(name, 1, tenant="lab", where=ON_H100, limit_s=3600))
    state = schedule(state)
    assert running(state) == {"a", "b"}
    cause, sentence = why(state, "c")
    assert cause is WaitReason.LIMIT
    assert "tenant lab holds 2 of its limit of 2 on hosts of gpu=h100" in sentence
    lab, _ = standings(state, 0)
    assert lab.held_by_kind == (2 * GPUS,)
    state = schedule(run(state, submit_job("d", 4, tenant="shop", where=Constraints())))
    assert running(state) == {"a", "b", "d"}
    assert running(schedule(run(state, end("a")))) == {"b", "c", "d"}


def test_a_job_of_any_hosts_lies_beside_a_limit() -> None:
    state = schedule(run(mixed(LIMITED), submit_job("a", 5, tenant="lab")))
    assert h100s(hosts_of(state, "a")) <= 2
    state = schedule(run(state, submit_job("b", 2, tenant="lab")))
    cause, sentence = why(state, "b")
    assert cause is WaitReason.PROMISES
    assert "the rest is beyond its limit on hosts of gpu=h100" in sentence


def test_a_later_small_job_does_not_pass_one_that_waits_for_a_limit() -> None:
    state = mixed(LIMITED)
    state = schedule(run(state, submit_job("a", 1, tenant="lab", where=ON_H100, limit_s=600)))
    state = run(
        state,
        submit_job("large", 2, tenant="lab", where=ON_H100, limit_s=600),
        submit_job("long", 1, tenant="lab", where=ON_H100, limit_s=6000),
        submit_job("short", 1, tenant="lab", where=ON_H100, limit_s=500),
        submit_job("other", 1, tenant="lab", where=ON_A100),
    )
    assert running(schedule(state)) == {"a", "short", "other"}


def test_reservation_of_hosts_keeps_room_below_a_limit_on_their_kind() -> None:
    """`large` waits for hosts: `long` would leave it two of them, and one below the limit."""
    busy = submit_job("s", 3, tenant="shop", where=ON_H100, limit_s=600)
    state = run(
        schedule(run(mixed(LIMITED), busy)),
        submit_job("large", 2, tenant="lab", where=ON_H100, limit_s=600),
        submit_job("long", 1, tenant="lab", where=ON_H100, limit_s=6000),
        submit_job("other", 1, tenant="lab", where=ON_A100, limit_s=6000),
        submit_job("next", 1, tenant="shop", where=ON_H100, limit_s=6000),
    )
    assert running(schedule(state)) == {"s", "other", "next"}


def test_a_job_that_can_evict_nobody_holds_back_no_job_on_hosts_of_another_kind() -> None:
    limit = KindQuota(H100, limit_gpus=2 * GPUS)
    lab = Tenant("lab", guaranteed_gpus=4 * GPUS, kinds=(limit,))
    tenants = Tenants((lab, Tenant("shop")), classes=(SPOT,), preemption=Preemption(min_run_s=0))
    state = run(
        mixed(tenants), submit_job("s", 4, tenant="shop", priority_class="spot", where=ON_A100)
    )
    for name in ("a", "b", "c"):
        state = run(state, submit_job(name, 1, tenant="lab", where=ON_H100))
    state = schedule(state)
    assert running(state) == {"s", "a", "b"}
    state = run(state, submit_job("x", 1, tenant="lab", where=ON_A100))
    assert running(schedule(state, 1)) == {"a", "b", "x"}


def test_what_a_limit_never_allows_is_refused() -> None:
    answer = refused(mixed(LIMITED), submit_job("a", 3, tenant="lab", where=ON_H100))
    assert "the limit of tenant lab is 2 hosts of gpu=h100" in answer.message
    answer = refused(mixed(LIMITED), submit_job("a", 7, tenant="lab"))
    assert "the limit of tenant lab is 2 hosts of gpu=h100" in answer.message


def test_hosts_of_a_guaranteed_kind_are_lent_to_preemptible_jobs_and_come_back() -> None:
    state = mixed(OWED)
    for name in ("s0", "s1"):
        where = ON_H100 if name == "s0" else ON_A100
        state = run(state, submit_job(name, 4, tenant="shop", priority_class="spot", where=where))
    state = schedule(state)
    assert running(state) == {"s0", "s1"}
    state = schedule(run(state, submit_job("l", 3, tenant="lab", where=ON_H100)))
    assert running(state) == {"l", "s1"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (KindQuota((("gpu", "b200"),)), "no host is labelled gpu=b200"),
        (KindQuota(H100, guaranteed_gpus=40), "guarantee 40 GPUs of gpu=h100; small has 32"),
        (KindQuota(H100, 16, 8), "8 GPUs of gpu=h100 is below the guarantee of 16"),
    ],
)
def test_a_quota_that_the_fabric_does_not_have_is_refused(kind: KindQuota, message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        guarantees.check(Tenants((Tenant("lab", kinds=(kind,)),)), MIXED)
    assert error.value.field == "tenants.lab.kinds"


def test_quotas_of_kinds_are_read_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    text = "tenants:\n- name: lab\n  kinds:\n  - {hosts: {gpu: h100}, guaranteed_gpus: 8,"
    path.write_text(f"{text} limit_gpus: 16}}\n")
    lab = load_tenants(str(path)).tenants.by_name["lab"]
    assert lab.kinds == (KindQuota(H100, 8, 16),)
    path.write_text(f"{text} limit_gpus: 4}}\n")
    with pytest.raises(InputError, match=r"tenants.yaml:3: tenants.0.kinds: 4 GPUs of gpu=h100"):
        load_tenants(str(path)).check(MIXED)


@pytest.mark.parametrize("seed", range(201, 206))
def test_no_start_takes_a_tenant_beyond_a_limit_on_a_kind(seed: int) -> None:
    rng, state, kinds = random.Random(seed), mixed(LIMITED), (ON_H100, Constraints())
    h100: HostSet = hostset.of(i for i, h in enumerate(MIXED.hosts) if h.startswith("z0"))
    for number in range(40):
        if rng.random() < 0.6:
            tenant, size = rng.choice(("lab", "lab", "shop")), rng.choice((1, 1, 2, 3))
            where = kinds[rng.random() < 0.6]
            if tenant == "lab" and where is ON_H100:
                size = min(size, 2)
            state = run(
                state, submit_job(f"j{number}", size, tenant=tenant, where=where, limit_s=600)
            )
        elif runs := sorted(running(state)):
            state = run(state, end(rng.choice(runs)))
        state = schedule(state, number)
        held = [
            job(state, n).allocation & h100 for n in running(state) if job(state, n).tenant == "lab"
        ]
        assert sum(hosts.bit_count() for hosts in held) <= 2
    while waiting := state.index.queue:  # and none of them waits for ever
        state = run(state, *(end(name) for name in sorted(running(state))))
        state = schedule(state, 100)
        assert len(state.index.queue) < len(waiting)
