"""Storage that gangs share: what it costs their steps, and jobs that wait for its reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placement.errors import BadInput
from placement.fabric.reader import from_spec
from placement.fabric.storage import Storage
from placement.fabric.tree import Fabric
from placement.workload.training import Batch
from scheduler.core import Conflict, State, commit, decide, explain
from scheduler.core.model.commands import ChangeFabric, SubmitJob
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.job_terms import CheckpointTerms, DatasetTerms
from scheduler.core.policies.storage_use import (
    StorageUse,
    bytes_of_step,
    most_read_gb_per_s,
    rate_beside,
    sizes_of,
    storage_cost,
    storage_use,
)
from scheduler.core.queue.verdict import WaitReason
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_job
from tests.build import (
    LLAMA3,
    end,
    fabric,
    fabric_spec,
    hosts_of,
    llama3,
    loaded,
    refused,
    request,
    run,
    running,
    schedule,
    submit,
)

OPTIONS = SchedulingOptions()


def stored(**storage: Any) -> Fabric:
    """Two zones of two racks of two hosts, and storage."""
    return from_spec(fabric_spec() | {"storage": {"write_gb_per_s": 10, **storage}})


def listed(*stores: dict[str, Any]) -> Fabric:
    """The same fabric with a list of stores."""
    stated = [{"write_gb_per_s": 10, **store} for store in stores]
    return from_spec(fabric_spec() | {"storage": stated})


HOLDING = stored(read_gb_per_s=70, hold_jobs=True)
CACHE = {"name": "cache", "read_gb_per_s": 70, "hold_jobs": True}
ZONED = stored(by_tier={"zone": {"read_gb_per_s": 20}}, hold_jobs=True)
TWO = listed(CACHE, {"name": "archive", "read_gb_per_s": 30, "hold_jobs": True})


WRITTEN = sizes_of(fabric(), llama3())
assert WRITTEN is not None
SIZES = WRITTEN


def reading(name: str, gb_per_s: float, hosts: int = 1, store: str = "", **job: Any) -> SubmitJob:
    command = submit(name, hosts, **job)
    dataset = DatasetTerms(read_gb_per_s=gb_per_s, store=store)
    return replace(command, spec=replace(command.spec, dataset=dataset))


def said(state: State, name: str) -> str:
    return explain(state, name, 0, OPTIONS).sentence


def use(store: Storage, rate: float, **changes: Any) -> StorageUse:
    used = StorageUse(rate, 0.0, 1, None, 1800.0, 0, read_store=store, write_store=store)
    return replace(used, **changes)


# --- what gangs leave each other -------------------------------------------------


@pytest.mark.parametrize(
    ("others", "left"),
    [((), 70.0), ((10.0, 20.0), 40.0), ((60.0,), 35.0), ((5.0, 90.0, 90.0), 65 / 3)],
)
def test_gangs_that_want_little_get_it_and_the_rest_is_shared_evenly(
    others: tuple[float, ...], left: float
) -> None:
    assert rate_beside(others, 70.0) == pytest.approx(left)


def test_a_checkpoint_takes_longer_beside_those_who_write() -> None:
    storage = Storage(10.0, 0.0, 0.0)
    writer = use(storage, 0.0, sizes=SIZES, interval_s=SIZES.total / 10e9, step_s=5.0)
    cost = storage_cost(writer, [writer, writer])
    assert cost.alone_s == pytest.approx(SIZES.total / 10e9)
    assert cost.write_s == pytest.approx(2 * SIZES.total / 10e9)  # each writes half of the time
    assert cost.write_exposed_s == pytest.approx(10.0)


def test_checkpoints_that_are_kept_are_counted_against_the_capacity() -> None:
    tb = 20 * SIZES.total / 1e12
    keeping = use(Storage(10.0, 0.0, tb - 1), 0.0, sizes=SIZES, keep=10)
    full = storage_cost(keeping, [keeping])
    assert full.is_full
    assert "are to be kept, and the storage holds" in full.retention_text
    keeping = replace(keeping, write_store=Storage(10.0, 0.0, tb + 1))
    assert not storage_cost(keeping, [keeping]).is_full


def test_gangs_meet_only_on_the_stores_that_they_share() -> None:
    near, far = Storage(10.0, 70.0, 100.0, name="near"), Storage(10.0, 70.0, 9.0, name="far")
    own = use(near, 60.0, step_s=2.0, sizes=SIZES, keep=2, write_store=far)
    apart = use(far, 60.0, sizes=SIZES, keep=2, write_store=near)
    cost = storage_cost(own, [apart])
    assert cost == storage_cost(own, ())
    reader, writer = replace(apart, read_store=near), replace(apart, write_store=far)
    cost = storage_cost(own, [apart, reader, writer])
    assert (cost.gangs, cost.readers, cost.writers, cost.left_gb_per_s) == (2, 1, 1, 35)
    assert cost.write_s == pytest.approx(cost.alone_s * (1 + writer.busy_shares["store far"]))
    assert cost.stored_tb == pytest.approx(4 * SIZES.total / 1e12)
    assert "and store near leaves it 35 beside 1 other gang" in cost.text
    assert "a checkpoint in store far takes" in cost.text
    assert "of checkpoints are to be kept, and store far holds 9 TB" in cost.text


def test_a_gang_reads_over_the_paths_of_the_zones_that_it_lies_in() -> None:
    zoned = stored(read_gb_per_s=100, by_tier={"zone": {"read_gb_per_s": 20}})
    wants = use(zoned.stores[0], 30.0, step_s=2.0)
    inside, across, far = (wants.on(zoned, hosts) for hosts in ([0, 1], [1, 4], [5]))
    assert storage_cost(inside, ()).left_gb_per_s == 20
    assert storage_cost(inside, [far]).left_gb_per_s == 20
    assert storage_cost(across, ()).left_gb_per_s == 40  # half of it over each path
    cost = storage_cost(across, [inside])  # which wants 30 GB/s of the path, and gets 10
    assert cost.left_gb_per_s == 20
    assert cost.read_exposed_s == pytest.approx(1.0)
    assert "and the path of zone z0 to the storage leaves it 20 beside 1 other gang" in cost.text


def test_a_checkpoint_waits_for_the_fullest_path_to_its_store() -> None:
    zoned = stored(by_tier={"zone": {"write_gb_per_s": 4}})
    writer = use(zoned.stores[0], 0.0, sizes=SIZES, interval_s=SIZES.total / 4e9)
    inside, across, far = (writer.on(zoned, hosts) for hosts in ([0, 1], [1, 4], [5]))
    assert storage_cost(inside, ()).alone_s == pytest.approx(SIZES.total / 4e9)
    assert storage_cost(across, ()).alone_s == pytest.approx(SIZES.total / 8e9)
    beside = storage_cost(inside, [inside])  # each keeps the path busy for half of the time
    assert (beside.busy_share, beside.slowdown) == pytest.approx((0.5, 1.5))
    assert "a checkpoint over the path of zone z0 to the storage takes" in beside.text
    assert storage_cost(inside, [far]).slowdown == 1


def test_datasets_pass_a_pool_of_readers() -> None:
    pooled = stored(read_gb_per_s=70, readers={"hosts": 4, "gb_per_s": 5})
    cost = storage_cost(use(pooled.stores[0], 22.0, step_s=2.0), ())
    assert (cost.left_gb_per_s, cost.use.readers_needed) == (20, 5)
    assert "takes 5 of 4 readers, and the pool of 4 readers of the storage leaves" in cost.text
    told = refused(loaded(stored(hold_jobs=True, **pooled.spec["storage"])), reading("a", 21))
    assert "the pool of 4 readers of the storage of small reads 20" in str(told)


def test_reads_follow_from_tokens_and_steps() -> None:
    wanted, dataset = llama3(), DatasetTerms(token_bytes=2.0)
    assert bytes_of_step(wanted, dataset) == 2_048 * 8_192 * 2
    assert bytes_of_step(wanted, DatasetTerms(tokens=10)) == 40
    own = storage_use(fabric(), wanted, dataset, CheckpointTerms(), Costs())
    assert own.at_step(4.0).read_gb_per_s == pytest.approx(2_048 * 8_192 * 2 / 4e9)
    assert own.read_gb_per_s == most_read_gb_per_s(fabric(), wanted, dataset)


@pytest.mark.parametrize(("shards", "times"), [(0, 1), (8, 1), (12, 1), (6, 4), (3, 4)])
def test_replicas_read_all_shards_whose_number_does_not_divide(shards: int, times: int) -> None:
    wanted = request(dp=4, model=LLAMA3, batch=Batch(4))
    once = bytes_of_step(wanted, DatasetTerms())
    assert bytes_of_step(wanted, DatasetTerms(shards=shards)) == times * once


# --- jobs that wait for reads ----------------------------------------------------


def test_a_job_waits_for_reads_and_starts_when_a_gang_that_reads_ends() -> None:
    state = loaded(HOLDING)
    state = run(state, reading("a", 40, limit_s=3600), reading("b", 20, limit_s=7200))
    state = schedule(run(state, reading("c", 20), submit("d", 2)))
    assert running(state) == {"a", "b", "d"}
    reason = explain(state, "c", 0, OPTIONS)
    assert reason.cause is WaitReason.CONSTRAINTS
    assert (
        "reads 20 GB/s of its dataset; of the 70 GB/s of the storage running gangs leave 10"
        in reason.sentence
    )
    assert reason.start_ns == 3600 * SECOND_NS
    state = schedule(run(state, end("a")), 1)
    assert running(state) == {"b", "c", "d"}


def test_nobody_waits_unless_the_site_says_so() -> None:
    state = loaded(stored(read_gb_per_s=70))
    state = schedule(run(state, reading("a", 60), reading("b", 60)))
    assert running(state) == {"a", "b"}
    assert "the storage leaves it 35 beside 1 other gang" in said(state, "a")


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative", "production"])
def test_small_readers_do_not_pass_a_large_one_for_ever(policy: str) -> None:
    state = loaded(HOLDING)
    state = schedule(run(state, reading("a", 40, limit_s=3600)), policy=policy)
    state = run(state, reading("large", 50, limit_s=3600), reading("late", 15, limit_s=90_000))
    state = run(state, reading("later", 15, limit_s=90_000))
    state = schedule(state, policy=policy)
    assert running(state) == ({"a"} if policy == "fifo" else {"a", "late"})
    state = schedule(run(state, end("a")), 1, policy=policy)
    assert {"large", "late"} <= running(state)
    assert "later" not in running(state)


def test_a_short_reader_passes_one_that_waits_for_longer() -> None:
    state = schedule(run(loaded(HOLDING), reading("a", 40, limit_s=3600)))
    state = run(state, reading("large", 60, limit_s=3600), reading("short", 30, limit_s=600))
    assert running(schedule(state)) == {"a", "short"}
    long = run(state, reading("long", 30, limit_s=7200))
    assert "which jobs ahead of it wait for" in said(long, "long")


def test_a_plan_that_reads_more_than_is_left_is_stale() -> None:
    before = run(loaded(HOLDING), reading("a", 40))
    plan = decide(before, 0, OPTIONS)
    other = schedule(run(loaded(HOLDING), reading("b", 40)))
    answer = commit(run(other, reading("a", 40)), plan, 1)
    assert isinstance(answer, Conflict)
    assert "running gangs leave 30" in str(answer)


def test_a_job_that_the_storage_can_never_serve_is_refused() -> None:
    told = refused(loaded(HOLDING), reading("a", 71))
    assert "reads 71 GB/s of its dataset; the storage of small reads 70" in str(told)


def test_jobs_wait_for_the_store_that_they_read_and_for_no_other() -> None:
    state = run(loaded(TWO), reading("a", 60), reading("b", 20, store="archive"))
    state = schedule(run(state, reading("c", 20, store="cache"), reading("d", 10, store="archive")))
    assert running(state) == {"a", "b", "d"}
    assert "of the 70 GB/s of store cache running gangs leave 10" in said(state, "c")
    state = schedule(run(state, end("b")), 1)
    assert "c" not in running(state)
    state = schedule(run(state, end("a")), 1)
    assert "c" in running(state)


def test_a_job_waits_for_the_paths_of_its_zones_and_starts_when_a_gang_there_ends() -> None:
    state = loaded(ZONED)
    state = run(state, reading("a", 20, limit_s=3600), reading("b", 20, 2, limit_s=7200))
    state = schedule(run(state, reading("c", 5, limit_s=3600), submit("d", 2)))
    assert running(state) == {"a", "b", "d"}
    zones = [{host[:2] for host in hosts_of(state, name)} for name in ("a", "b")]
    assert zones[0] ^ zones[1] == {"z0", "z1"}
    reason = explain(state, "c", 0, OPTIONS)
    assert reason.cause is WaitReason.CONSTRAINTS
    assert (
        "reads 5 GB/s of its dataset, 5 on each host; gangs leave the paths of 0 free hosts to"
        " the storage as much" in reason.sentence
    )
    assert reason.start_ns == 3600 * SECOND_NS
    assert running(schedule(run(state, end("a")), 1)) == {"b", "c", "d"}


def test_a_gang_takes_of_each_zone_as_many_hosts_as_its_path_has_reads_for() -> None:
    state = schedule(run(loaded(ZONED), reading("wide", 40, 4)))
    zones = [host[:2] for host in hosts_of(state, "wide")]
    assert (zones.count("z0"), zones.count("z1")) == (2, 2)
    told = refused(loaded(ZONED), reading("wider", 60, 4))
    assert (
        "reads 60 GB/s of its dataset, 15 on each of 4 hosts; the paths to the storage of small"
        " let 2 hosts read as much" in str(told)
    )


def test_long_readers_do_not_pass_a_job_that_waits_for_paths() -> None:
    state = schedule(run(loaded(ZONED), reading("a", 20, limit_s=3600)))
    state = run(state, reading("large", 40, 4, limit_s=3600), reading("long", 5, limit_s=90_000))
    state = schedule(run(state, reading("short", 5, limit_s=600)))
    assert running(state) == {"a", "short"}


def test_a_plan_for_hosts_whose_path_is_taken_meanwhile_is_stale() -> None:
    before = run(loaded(ZONED), reading("a", 20))
    plan = decide(before, 0, OPTIONS)
    other = schedule(run(loaded(ZONED), reading("b", 20)))
    assert hosts_of(schedule(before), "a")[0][:2] == hosts_of(other, "b")[0][:2]
    answer = commit(run(other, reading("a", 20)), plan, 1)
    assert isinstance(answer, Conflict)


@pytest.mark.parametrize(
    ("on", "known"),
    [
        (TWO, "no store 'disk'; there are cache, archive"),
        (HOLDING, "no store 'disk'; the fabric file names none under storage"),
        (fabric(), "no store 'disk'; the fabric file names none under storage"),
    ],
)
def test_an_unknown_store_is_refused_with_those_that_there_are(on: Fabric, known: str) -> None:
    told = refused(loaded(on), reading("a", 1, store="disk"))
    assert [(each.field, each.message) for each in told.violations] == [("dataset.store", known)]
    command = submit("a")
    kept = replace(command, spec=replace(command.spec, checkpoint=CheckpointTerms(store="disk")))
    told = refused(loaded(on), kept)
    assert [(each.field, each.message) for each in told.violations] == [("checkpoint.store", known)]


def test_a_fabric_cannot_lose_a_store_that_a_job_uses() -> None:
    state = schedule(run(loaded(TWO), reading("a", 1), reading("b", 1, store="archive")))
    told = refused(state, ChangeFabric(listed(CACHE).spec))
    assert "no store 'archive'; there are cache" in str(told)
    assert "job b" in str(told)


JOB = """\
name: job
parallelism: {tp: 8, dp: 4}
model: {layers: 32, hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8, vocab: 128256, sequence: 8192}
batch: {global_sequences: 96}
spares: 0
"""
BARE = "name: bare\nparallelism: {tp: 8, dp: 4}\ntraffic: {dp: 9}\nspares: 0\n"


@pytest.mark.parametrize(
    ("job", "line", "message"),
    [
        (JOB, "{shard: 4}", "6: dataset.shard: unknown key 'shard', did you mean shards?"),
        (JOB, "{token_bytes: 0}", "6: dataset.token_bytes: must be a number above 0"),
        (JOB, "{tokens: -1}", "6: dataset.tokens: must not be negative, is -1"),
        (JOB, "{store: 3}", "6: dataset.store: must be a non-empty text, not 3"),
        (JOB, "{}\ncheckpoint: {keep: many}", "7: checkpoint.keep: must be a whole number, not"),
        (JOB, "{read_gb_per_s: 3, shards: 9}", "6: dataset.shards: conflicts with read_gb_per_s, "),
        (BARE, "{tokens: 9}", "5: dataset.read_gb_per_s: is required: nothing says how"),
        (
            BARE + "compute_time_s: 2\n",
            "{shards: 9}",
            "6: dataset.tokens: is required, for the job",
        ),
    ],
)
def test_bad_keys_have_their_line(tmp_path: Path, job: str, line: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"{job}dataset: {line}\n")
    with pytest.raises(InputError) as told:
        load_job(str(path))
    assert f"job.yaml:{message}" in str(told.value)


W = {"write_gb_per_s": 1}
KEYS = "read_gb_per_s, capacity_tb, hold_jobs, by_tier, readers"


@pytest.mark.parametrize(
    ("storage", "field", "message"),
    [
        (W | {"hold_jobs": 1}, ".hold_jobs", "must be true or false, not 1"),
        (W | {"hold_jobs": True}, ".read_gb_per_s", "is required with hold_jobs: what it reads"),
        (W | {"by_tier": 3}, ".by_tier", "must map tiers to {read_gb_per_s: N}; "),
        (W | {"by_tier": {"pod": {}}}, ".by_tier.pod", "no tier 'pod'; there are zone, rack"),
        (W | {"by_tier": {"zone": 25}}, ".by_tier.zone", "must be {read_gb_per_s: N, write_gb_per"),
        (W | {"by_tier": {"zone": {"reads": 2}}}, ".by_tier.zone.reads", "unknown key; known are "),
        (
            W | {"by_tier": {"zone": {"read_gb_per_s": 0}}},
            ".by_tier.zone.read_gb_per_s",
            "must be a positive number, not 0",
        ),
        (W | {"readers": {"hosts": 4}}, ".readers", "must be {hosts: N, gb_per_s: N}: how many"),
        (
            W | {"readers": {"hosts": 1.5, "gb_per_s": 2}},
            ".readers.hosts",
            "must be a whole number of at least 1, not 1.5",
        ),
        ([], "", "must name at least one store"),
        ([W], ".0", "must be {name: NAME, write_gb_per_s: N}: each store of a list"),
        ([W | {"name": "a"}] * 2, ".1.name", "another store has the name 'a'"),
        ([{"name": "a"}], ".0", f"must be {{write_gb_per_s: N}}, and {KEYS}"),
        (
            [W | {"name": "a", "read": 2}],
            ".0.read",
            f"unknown key; known are write_gb_per_s, {KEYS}",
        ),
    ],
)
def test_bad_storage_is_named(storage: Any, field: str, message: str) -> None:
    with pytest.raises(BadInput) as told:
        from_spec(fabric_spec() | {"storage": storage})
    assert told.value.field == f"storage{field}"
    assert told.value.message.startswith(message)
