"""What holds for the bytes and the memory of any model, however it is split."""

from dataclasses import replace
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.workload.flops import active_parameter_count, parameter_count, training_flops
from placement.workload.memory import memory
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from placement.workload.traffic import Pattern, axis_traffic
from placement.workload.training import (
    Batch,
    ContextParallel,
    DataParallel,
    ModelShape,
    Recompute,
    Sync,
    Training,
)

FEW = settings(max_examples=50)
POWERS = st.sampled_from([1, 2, 4])


@st.composite
def models(draw: st.DrawFn) -> ModelShape:
    heads = 16 * draw(POWERS)
    experts: dict[str, int] = {}
    if draw(st.booleans()):
        experts = {
            "experts": 16 * draw(POWERS),
            "experts_per_token": draw(st.integers(1, 16)),
            "expert_ffn": draw(st.integers(0, 3_000)),
            "shared_experts": draw(st.integers(0, 2)),
            "dense_layers": draw(st.integers(0, 3)),
        }
    latent = {"kv_rank": 512, "rope_dim": 64, "query_rank": draw(st.sampled_from([0, 700]))}
    return ModelShape(
        layers=draw(st.integers(4, 20)),
        hidden=heads * 8 * draw(POWERS),
        ffn=draw(st.integers(1, 10_000)),
        heads=heads,
        kv_heads=draw(st.sampled_from([1, 8, heads])),
        vocab=draw(st.integers(1, 200_000)),
        sequence=16 * draw(st.integers(1, 600)),
        dtype=draw(st.sampled_from(["bf16", "fp16", "fp32"])),
        head_dim=draw(st.sampled_from([0, 32, 128])),
        gated=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        **experts,
        **(latent if draw(st.booleans()) else {}),
    )


@st.composite
def trainings(draw: st.DrawFn, p: Parallelism) -> Training:
    strategy = draw(st.sampled_from(DataParallel))
    groups = (
        [0] if strategy is DataParallel.DDP else [n for n in (0, 1, 2, 4) if not p.dp % (n or 1)]
    )
    return Training(
        data_parallel=strategy,
        shard_group=draw(st.sampled_from(groups)),
        sync=draw(st.sampled_from(Sync)),
        gradient_dtype=draw(st.sampled_from(["bf16", "fp32"])),
        sequence_parallel=draw(st.booleans()),
        context_parallel=draw(st.sampled_from(ContextParallel)),
        recompute=draw(st.sampled_from(Recompute)),
        dropout=draw(st.booleans()),
        expert_tp=draw(st.sampled_from([0, 1, p.tp])),
        expert_hosts_per_token=draw(st.integers(0, 8)),
        dispatch_dtype=draw(st.sampled_from(["", "fp8", "bf16"])),
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    model = draw(models())
    ep = draw(POWERS) if model.experts else 1
    p = Parallelism(
        draw(POWERS), draw(POWERS), ep, draw(POWERS), draw(POWERS),
        draw(st.sampled_from(["tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp", "dp-ep-tp-pp-cp"])),
    )  # fmt: skip
    micro = draw(st.integers(1, 2))
    chunks = draw(st.integers(1, max(1, min(3, (model.layers + 2) // p.pp))))
    batch = Batch(p.dp * ep * micro * draw(st.integers(1, 5)), micro, chunks)
    return Request(p, model=model, batch=batch, training=draw(trainings(p)))


def sent(req: Request) -> dict[str, int]:
    """Bytes that one rank sends, by axis."""
    pairs = {
        t.axis: t.size - 1 if t.pattern is Pattern.ALL_TO_ALL else 1 for t in axis_traffic(req)
    }
    return {t.axis: t.edge_bytes * pairs[t.axis] for t in axis_traffic(req)}


@FEW
@given(requests())
def test_every_axis_that_is_wider_than_one_carries_bytes(req: Request) -> None:
    for t in axis_traffic(req):
        assert t.size > 1
        assert t.edge_bytes > 0
        assert 0 <= t.wrap_bytes < t.edge_bytes
    assert prod(t.size for t in axis_traffic(req)) == req.parallelism.world_size


@FEW
@given(requests(), st.integers(1, 4))
def test_more_work_is_never_fewer_bytes(req: Request, times: int) -> None:
    assert req.batch is not None
    assert req.model is not None
    more = replace(req.batch, global_sequences=req.batch.global_sequences * times)
    for larger in (
        replace(req, batch=more),
        replace(req, model=replace(req.model, layers=req.model.layers * times)),
        replace(req, model=replace(req.model, sequence=req.model.sequence * times)),
        replace(req, training=replace(req.training, recompute=Recompute.FULL)),
        replace(req, training=replace(req.training, sync=Sync.MICRO_BATCH)),
    ):
        now = sent(larger)
        assert all(now[axis] >= bytes_ for axis, bytes_ in sent(req).items())


@FEW
@given(requests())
def test_zero_orders_the_bytes_and_the_memory(req: Request) -> None:
    def of(strategy: DataParallel) -> Request:
        how = replace(req.training, data_parallel=strategy, shard_group=0)
        return replace(req, training=how)

    zero = [of(s) for s in (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)]
    volumes = [sum(sent(each).values()) for each in zero]
    assert volumes == sorted(volumes)
    kept = [memory(each) for each in (of(DataParallel.DDP), *zero[:2])]
    totals = [each.total for each in kept if each]
    assert totals == sorted(totals, reverse=True)


@FEW
@given(requests(), st.sampled_from(["tp", "cp", "ep", "pp", "dp"]), st.integers(0, 10**15))
def test_explicit_bytes_always_win(req: Request, axis: str, bytes_: int) -> None:
    before = {t.axis: t for t in axis_traffic(req)}
    after = {t.axis: t for t in axis_traffic(replace(req, traffic=((axis, bytes_),)))}
    if axis in after:
        assert after[axis].edge_bytes == bytes_
        assert after[axis].size == req.parallelism.size(axis)
    same = set(before) - {axis, "dp_replicate"}
    assert all(before[other] == after[other] for other in same)


@FEW
@given(requests())
def test_memory_is_that_of_one_stage_and_recomputation_spares_some(req: Request) -> None:
    kept = {how: memory(replace(req, training=replace(req.training, recompute=how)))
            for how in Recompute}  # fmt: skip
    none, selective = kept[Recompute.NONE], kept[Recompute.SELECTIVE]
    assert none is not None
    assert selective is not None
    assert 0 <= selective.stage < req.parallelism.pp
    assert none.total >= selective.total > 0
    assert min(none.parameters, none.gradients, none.optimizer, none.activations) > 0


@given(models())
def test_what_a_token_meets_is_part_of_the_model(model: ModelShape) -> None:
    assert 0 < active_parameter_count(model) <= parameter_count(model)
    req = Request(Parallelism(), model=model, batch=Batch(1))
    assert 0 < training_flops(req) <= training_flops(req, causal=False)
