"""Quotas in hosts: what limits leave, what promises cover, what may be borrowed."""

from collections.abc import Iterator

import pytest

from placement.errors import BadInput
from placement.fabric import hostset
from scheduler.core.policies.tenants import GuaranteedCell, Tenant, Tenants
from scheduler.core.tenancy import guarantees
from scheduler.core.tenancy.guarantees import highest, withhold_for_cells
from scheduler.core.tenancy.quota import UNLIMITED, QuotaBook, nodes
from tests.build import fabric, flat

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


# --- cells ---------------------------------------------------------------------


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
