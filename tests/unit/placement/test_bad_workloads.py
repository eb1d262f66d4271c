"""What no gang can be is refused where it is made, by the field that is wrong, and what some
frameworks refuse is said."""

from collections.abc import Callable
from dataclasses import fields, replace
from math import nan
from typing import Any

import pytest

from placement.errors import BadInput
from placement.workload.framework_limits import check_parallelism, framework_notes
from placement.workload.parallelism import Parallelism
from placement.workload.replicas import check_batch
from placement.workload.request import Collective, Limits, Request, SpareRule
from placement.workload.traffic import axis_traffic
from placement.workload.training import Batch, ModelShape
from scheduler.files.errors import InputError
from scheduler.files.job import job_from_mapping
from tests.build import LLAMA3, LLAMA3_LONG, MIXTRAL, llama3, request, training
from tests.cases import case

BY_ZONE = Collective.HIERARCHICAL
ULYSSES = training(context_parallel="ulysses")


def shape(**changes: Any) -> ModelShape:
    return replace(LLAMA3, **changes)


def sent(**job: Any) -> object:
    return axis_traffic(request(**job))


def sent_by_llama3(row: int, **changes: Any) -> object:
    return axis_traffic(llama3(row, **changes))


def whole_hosts() -> int:
    return request(tp=4, dp=3).hosts_needed(8)


def batch_over_replicas() -> None:
    check_batch(request(tp=8, dp=3, batch=Batch(global_sequences=64)))


SMALL = ModelShape(32, 4_096, 14_336, 32, 8, 128_256, 8_192)


def of_small(chunks: int = 1, **axes: int) -> Request:
    batch = Batch(256 * axes.get("dp", 1), virtual_stages=chunks)
    return request(model=SMALL, batch=batch, **axes)


REFUSED: list[tuple[str, str, Callable[[], object]]] = [
    ("parallelism.tp", "at least 1", lambda: Parallelism(tp=0)),
    ("parallelism.order", "unknown axis 'xp'", lambda: Parallelism(order="tp-xp")),
    ("parallelism.order", "unknown axis ''", lambda: Parallelism(order="")),
    ("parallelism.order", "twice", lambda: Parallelism(order="tp-dp-tp")),
    ("parallelism.order", "leaves out pp, which has", lambda: Parallelism(pp=2, order="tp-dp")),
    ("parallelism", "x dp 3 = 12 ranks do not fill whole hosts of 8 GPUs", whole_hosts),
    ("batch.global_sequences", "do not divide over dp 3", batch_over_replicas),
    ("model.layers", "", lambda: shape(layers=0)),
    ("model.sequence", "", lambda: shape(sequence=-1)),
    ("model.heads", "", lambda: shape(heads=100)),
    ("model.heads", "128 does not divide hidden 100", lambda: shape(hidden=100)),
    ("model.dtype", "", lambda: shape(dtype="int4")),
    ("model.experts_per_token", "needs experts", lambda: shape(experts_per_token=2)),
    ("model.shared_experts", "needs experts", lambda: shape(shared_experts=1)),
    ("model.experts_per_token", "must be 1 to the 8 experts, is 0", lambda: shape(experts=8)),
    ("model.experts_per_token", "is 9", lambda: shape(experts=8, experts_per_token=9)),
    (
        *("model.dense_layers", "leaves none of the 126 layers"),
        lambda: shape(experts=8, experts_per_token=1, dense_layers=126),
    ),
    ("model.rope_dim", "needs kv_rank", lambda: shape(rope_dim=64)),
    ("model.head_dim", "must not be negative", lambda: shape(head_dim=-1)),
    ("training.shard_group", "", lambda: training(shard_group=-1)),
    ("training.shard_group", "", lambda: training(shard_group=8, data_parallel="ddp")),
    ("training.gradient_dtype", "", lambda: training(gradient_dtype="fp8")),
    ("training.dispatch_dtype", "", lambda: training(dispatch_dtype="int4")),
    ("training.gpu_memory_gb", "", lambda: training(gpu_memory_gb=-80)),
    ("batch.global_sequences", "", lambda: Batch(0)),
    ("batch.micro_sequences", "", lambda: Batch(1, micro_sequences=0)),
    ("batch.virtual_stages", "", lambda: Batch(1, virtual_stages=0)),
    ("spares", "", lambda: SpareRule(hosts=-1)),
    ("spares", "", lambda: SpareRule(share=-0.1)),
    ("spares", "", lambda: SpareRule(share=1.5)),
    ("spares", "", lambda: SpareRule(share=nan)),
    ("spares", "", lambda: SpareRule(hosts=1, share=0.1)),
    ("limits", "must not be negative, and turns at least 1", lambda: Limits(turns=0)),
    ("limits", "must not be negative, and turns at least 1", lambda: Limits(rounds=-1)),
    ("limits", "must not be negative, and turns at least 1", lambda: Limits(walk=-1)),
    ("parallelism.pp", "64 of a model of 32 layers", lambda: check_parallelism(of_small(pp=64))),
    ("parallelism.pp", "16 x 4 virtual stages", lambda: check_parallelism(of_small(4, pp=16))),
    ("parallelism.tp", "64 of a model of 32 heads", lambda: check_parallelism(of_small(tp=64))),
    ("traffic.pp", "must not be negative, is -1", lambda: sent(traffic={"pp": -1})),
    ("traffic.xp", "unknown axis", lambda: sent(traffic={"xp": 1})),
    ("collectives.xp", "unknown axis", lambda: sent(collectives={"xp": Collective.RING})),
    ("collectives.pp", "pp is a chain", lambda: sent(pp=2, collectives={"pp": BY_ZONE})),
    ("collectives.ep", "ep is all-to-all", lambda: sent(ep=2, collectives={"ep": BY_ZONE})),
    (
        *("collectives.cp", "cp is all-to-all"),
        lambda: sent(cp=2, training=ULYSSES, collectives={"cp": BY_ZONE}),
    ),
    ("batch", "required with a model", lambda: sent(dp=2, model=LLAMA3)),
    (
        *("batch.global_sequences", "2048 sequences do not divide over dp 3 in micro-batches of 1"),
        lambda: sent(dp=3, model=LLAMA3, batch=Batch(2_048)),
    ),
    (
        *("batch.global_sequences", "do not divide"),
        lambda: sent(dp=4, model=LLAMA3, batch=Batch(8, micro_sequences=4)),
    ),
    (
        *("model.experts", "8 do not divide over 3"),
        lambda: sent(ep=3, model=MIXTRAL, batch=Batch(3)),
    ),
    (
        *("model.experts", "8 do not divide over 16"),
        lambda: sent(tp=4, ep=4, model=MIXTRAL, batch=Batch(4), training=training(expert_tp=1)),
    ),
    (
        *("model", "is dense and has no experts"),
        lambda: sent(ep=2, model=LLAMA3, batch=Batch(2)),
    ),
    (
        *("training.shard_group", "divide dp 128"),
        lambda: sent_by_llama3(2, training=training(shard_group=48)),
    ),
    (
        *("training.expert_tp", "must be 1 or tp 8"),
        lambda: sent_by_llama3(2, training=training(expert_tp=4)),
    ),
    (
        *("training.context_parallel", "64 do not divide over tp 8 x cp 16"),
        lambda: sent_by_llama3(3, model=replace(LLAMA3_LONG, heads=64), training=ULYSSES),
    ),
    ("spread_alpha", "must be 0 to 1", lambda: replace(request(), spread_alpha=1.5)),
    ("cut_slack", "must be 0 to 1", lambda: replace(request(), cut_slack=-0.01)),
    ("cut_slack", "must be 0 to 1", lambda: replace(request(), cut_slack=1.01)),
]


def test_what_no_gang_can_be_names_its_field() -> None:
    for number, (field, says, make) in enumerate(REFUSED):
        with case(number=number, field=field):
            with pytest.raises(BadInput) as caught:
                make()
            assert caught.value.field == field
            assert says in caught.value.message


def test_a_job_file_of_ranks_without_a_layer_is_refused() -> None:
    model = {each.name: getattr(SMALL, each.name) for each in fields(SMALL)[:7]}
    batch = {"global_sequences": 256}
    mapping = {"name": "a", "parallelism": {"pp": 64}, "model": model, "batch": batch}
    with pytest.raises(InputError, match="64 of a model of 32 layers"):
        job_from_mapping(mapping)


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        (of_small(tp=8), ""),
        (of_small(tp=16), "tp 16 is more than the model's 8 key-value heads"),
        (of_small(tp=3), "tp 3 does not divide the model's 32 heads"),
        (of_small(2), "2 virtual stages need pp above 1"),
    ],
)
def test_what_some_frameworks_refuse_is_said(asked: Request, note: str) -> None:
    assert [text[: len(note)] for text in framework_notes(asked)] == ([note] if note else [])
