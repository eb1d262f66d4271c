"""One attempt as the server sees it: ranges of ranks, causes and followers, suspects."""

from dataclasses import replace

import pytest

from scheduler.core.policies.job_terms import RunSpec
from scheduler.launch.gangs import orders
from scheduler.launch.gangs.gang import LaunchedGang, RankRange
from tests.build import fabric, placed, regular


def gang(hosts: int = 4, world: int = 32, per_host: int = 0) -> LaunchedGang:
    names = tuple(f"h{n}" for n in range(hosts))
    return LaunchedGang(placed("a", names), RunSpec(("x",), per_host=per_host), world, 8, 0.0)


def test_each_host_carries_the_ranks_of_its_block() -> None:
    assert gang().ranks_of("h2") == RankRange(2, 16, 8)
    assert gang(2, 12).ranks_of("h1") == RankRange(1, 8, 4)


def test_ranks_are_told_what_their_gpus_are_held_to() -> None:
    run, small = placed("a", fabric().hosts[:1]), fabric()
    for watts, told in ((0, {}), (500, {"MUSTER_GPU_WATTS": "500"})):
        held = LaunchedGang(
            replace(run, job=run.job.with_power_limit(watts)), RunSpec(("x",)), 8, 8, 0.0
        )
        order = orders.prepare(held, small.hosts[0], orders.NO_TERMS, small)
        assert dict(order.prepare.env) == told


def test_a_gang_is_complete_when_every_process_has_ended_well() -> None:
    one, each = gang(2, 16, per_host=1), gang(2, 16)
    for rank in (0, 8):
        one.exited("h", rank, 0, 0, 1.0, "")
        each.exited("h", rank, 0, 0, 1.0, "")
    assert one.is_complete
    assert not each.is_complete
    assert each.hang_text(60.0, regular(("host", 2))).endswith(
        "; ended well: rank 0 on h0, rank 8 on h1"
    )


def test_the_earliest_failure_is_the_cause_whoever_was_heard_first() -> None:
    failed = gang()
    failed.exited("h0", 0, 1, 0, 5.00, "trace\nConnectionReset\n\n")
    failed.exited("h3", 24, 0, 9, 4.98, "")
    failed.exited("h3", 24, 1, 0, 4.00, "said twice")
    first = failed.first_failure()
    assert (first.rank, first.host, first.reason) == (24, "h3", "was killed by signal 9")
    assert failed.failures[0].reason == "exited with code 1: ConnectionReset"


@pytest.mark.parametrize(
    ("hosts", "gone", "suspects"),
    [
        (4, ["h1"], ["h1"]),
        (4, ["h1", "h2"], []),
        (16, ["h1", "h2", "h3"], ["h1", "h2", "h3"]),
        (4, ["other"], []),
    ],
)
def test_few_that_are_gone_are_suspects_and_many_are_not(
    hosts: int, gone: list[str], suspects: list[str]
) -> None:
    assert gang(hosts, hosts * 8).suspects(gone) == suspects
