"""Legal numbers of replicas, and who stays where when their number changes."""

from dataclasses import replace

import pytest

from placement.fabric.constraints import Constraints
from placement.largest import legal_sizes
from placement.objective.check import violations
from placement.replace.elastic import NEW, carried, on_hosts, replicas_on
from placement.replace.near import Hint
from placement.workload.replicas import batch_sizes, sized
from placement.workload.training import Batch
from scheduler.core.wording import sizes_text
from tests.build import (
    coordinates,
    everything,
    exactly,
    fabric,
    gang,
    llama3,
    place_checked,
    rank_at,
    request,
)

F = fabric(zones=2, racks=2, hosts=2)


def test_legal_sizes_fill_hosts_divide_the_batch_and_fit_the_fabric() -> None:
    # tp 2 x pp 2: two replicas fill a host of 8 GPUs.
    assert legal_sizes(F, request(tp=2, pp=2, dp=8), 1) == (2, 4, 6, 8)
    # The batch divides.
    job = request(tp=8, dp=8, batch=Batch(global_sequences=24))
    assert legal_sizes(F, job, 1) == (1, 2, 3, 4, 6, 8)
    assert batch_sizes(job, 4) == (4, 6, 8)
    # None is larger than the fabric.
    assert legal_sizes(F, gang(100), 5) == (5, 6, 7, 8)
    assert legal_sizes(F, gang(100), 9) == ()
    # Spares and constraints count.
    assert legal_sizes(F, gang(8, spares=exactly(3)), 1) == (1, 2, 3, 4, 5)
    inside = replace(gang(8), where=Constraints(same="rack"))
    assert legal_sizes(F, inside, 1) == (1, 2)
    # A range of thousands is quick.
    assert len(legal_sizes(F, request(tp=8, dp=2**31 - 1), 1)) == 8
    huge = request(tp=8, dp=2**31 - 1, batch=Batch(global_sequences=2**31 - 1))
    assert legal_sizes(F, huge, 1) == (1,)


def test_shard_groups_stay_whole_and_a_gpu_has_the_memory() -> None:
    network = fabric(zones=4, racks=16, hosts=8)
    job = sized(llama3(batch=Batch(global_sequences=512)), 4)
    sharded = replace(job, training=replace(job.training, shard_group=2))
    assert legal_sizes(network, sharded, 1) == (2, 4)
    # The optimizer is shared out over dp: with fewer replicas each holds more.
    tight = replace(job, training=replace(job.training, gpu_memory_gb=80))
    assert legal_sizes(network, job, 1) == (1, 2, 4)
    assert legal_sizes(network, tight, 1) == (4,)


def test_sizes_are_told_shortly() -> None:
    assert sizes_text((8, 16, 32)) == "8, 16, 32"
    assert sizes_text(range(8, 129, 8)) == "8 to 128 in steps of 8"
    assert sizes_text((1, 2, 4, 8, 16, 32, 64)) == "1, 2, 4, 8, ... 64 (7 sizes)"


@pytest.mark.parametrize("order", ["tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp"])
def test_a_replica_that_goes_leaves_the_others_on_their_hosts(order: str) -> None:
    """Checked rank by rank: the coordinates say who is who."""
    old = request(tp=8, pp=2, dp=4, order=order)
    hosts = (10, 11, 12, 13, 14, 15, 16, 17)
    kept = (0, 2, 3)
    new = sized(old, 3)
    found = carried(old, 8, hosts, kept)
    for rank in range(new.parallelism.world_size):
        at = coordinates(new.parallelism, rank)
        was = rank_at(old.parallelism, **{**at, "dp": kept[at["dp"]]})
        assert found[rank // 8] == hosts[was // 8]


def test_new_replicas_and_ranks_beside_others_have_no_hosts_yet() -> None:
    old = request(tp=8, pp=2, dp=2)
    assert carried(old, 8, (4, 5, 6, 7), (0, 1, NEW)) == (4, 5, 6, 7, NEW, NEW)
    # Two replicas a host: without the first of four, none of the two hosts is whole.
    old = request(tp=4, dp=4)
    assert carried(old, 8, (0, 1), (1, 2)) == (NEW,)
    assert carried(old, 8, (0, 1), (2, 3)) == (1,)
    # Replicas of a block.
    assert replicas_on(request(tp=4, dp=4), 8, 1) == (2, 3)
    assert replicas_on(request(tp=8, pp=2, dp=2), 8, 3) == (1,)


def test_growing_keeps_the_hosts_of_the_old_replicas() -> None:
    old = gang(4, pp=2)
    at = place_checked(F, everything(F), old)
    larger = sized(old, 3)
    hint = Hint(carried(old, 8, at.hosts, (0, 1, NEW)), slack=1e9)
    found = place_checked(F, everything(F), larger, hint=hint)
    assert found.hosts[:4] == at.hosts


def test_a_gang_on_given_hosts_has_its_spares_or_is_none() -> None:
    job = gang(2, spares=exactly(1))
    found = on_hosts(F, job, (0, 1), 0b1100)
    assert found is not None
    assert len(found.spares) == 1
    assert not violations(F, everything(F), job, found)
    assert on_hosts(F, job, (0, 1), 0) is None
