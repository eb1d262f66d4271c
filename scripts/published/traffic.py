"""Models, groups and volumes as published: what the traffic model must reproduce."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from placement.objective.step_time import Pipeline
from placement.workload.flops import active_parameter_count, parameter_count, training_flops
from placement.workload.memory import memory
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from placement.workload.traffic import axis_traffic
from placement.workload.training import Batch, ModelShape, Recompute, Training
from placement.workload.volumes import state_share
from scripts.published import Value

LLAMA3 = ModelShape(126, 16_384, 53_248, 128, 8, 128_256, 8_192)
LLAMA3_LONG = ModelShape(126, 16_384, 53_248, 128, 8, 128_256, 131_072)
LLAMA3_RUNS = (  # table 4, with DP 8 in the last row
    Request(Parallelism(tp=8, pp=16, dp=64), model=LLAMA3, batch=Batch(64 * 32)),
    Request(Parallelism(tp=8, pp=16, dp=128), model=LLAMA3, batch=Batch(128 * 16)),
    Request(Parallelism(tp=8, cp=16, pp=16, dp=8), model=LLAMA3_LONG, batch=Batch(8 * 16)),
)
MIXTRAL = ModelShape(
    32, 4_096, 14_336, 32, 8, 32_000, 4_096, experts=8, experts_per_token=2
)  # Jiang et al. 2024, table 1
DEEPSEEK_V3 = ModelShape(  # technical report 2024, 4.2
    61, 7_168, 18_432, 128, 128, 129_280, 4_096,
    head_dim=128, query_rank=1_536, kv_rank=512, rope_dim=64,
    experts=256, experts_per_token=8, expert_ffn=2_048, shared_experts=1, dense_layers=3,
)  # fmt: skip
A100_DAY = 86_400 * 1e12  # FLOPs of one TFLOP/s


def gpt(layers: int, hidden: int, heads: int) -> ModelShape:
    """A row of table 1 of Narayanan et al. 2021: V = 51,200, s = 2,048."""
    return ModelShape(
        layers, hidden, 4 * hidden, heads, heads, 51_200, 2_048, gated=False, tied_embeddings=True
    )


GPT3, ONE_TRILLION = gpt(96, 12_288, 96), gpt(128, 25_600, 160)


def sizes() -> Value:
    return tuple(run.parallelism.world_size for run in LLAMA3_RUNS)


def tokens() -> Value:
    return tuple(
        run.batch.global_sequences * run.model.sequence
        for run in LLAMA3_RUNS
        if run.batch and run.model
    )


def billions(*shapes: ModelShape) -> Value:
    return tuple(round(parameter_count(shape) / 1e9, 1) for shape in shapes)


def active_billions(*shapes: ModelShape) -> Value:
    return tuple(round(active_parameter_count(shape) / 1e9, 2) for shape in shapes)


def days(shape: ModelShape, tokens: float, gpus: int, tflops: float) -> float:
    """muster's FLOPs of a step, a third more for full recomputation. The source leaves out
    attention and the vocabulary (eq. 4: 8 T P / (n X)), which are 1 to 3 %."""
    step = Request(Parallelism(), model=shape, batch=Batch(1_536))
    steps = tokens / (1_536 * shape.sequence)
    return steps * training_flops(step, causal=False) * 4 / 3 / (gpus * tflops * A100_DAY)


def steps_of(shape: ModelShape) -> float:
    """FLOPs of one step of 1,536 sequences over those of eq. 3 without recomputation."""
    size, layers, hidden = 1_536, shape.layers, shape.hidden
    ours = training_flops(Request(Parallelism(), model=shape, batch=Batch(size)), causal=False)
    s, v = shape.sequence, shape.vocab
    rest = 1 + Fraction(s, 6 * hidden) + Fraction(v, 12 * layers * hidden)
    return float(ours / (72 * size * s * layers * hidden**2 * rest))


def gathered_mb(kv_heads: int) -> float:
    """K and V that a rank gathers for one layer and micro-batch, row 3 of table 4. MB."""
    shape = replace(LLAMA3_LONG, kv_heads=kv_heads)
    run = replace(LLAMA3_RUNS[2], model=shape)
    sent = next(t.edge_bytes for t in axis_traffic(run) if t.axis == "cp")
    both_ways = sent * (1 - state_share(run, "cp"))
    layers_and_micro_batches = Fraction(126, 16) * 16
    return round(float(both_ways / 2 / layers_and_micro_batches) / 1e6, 1)


def first_groups() -> Value:
    """The group of rank 0 along each axis: figure 5 of Llama 3, sizes of 2."""
    p = Parallelism(tp=2, cp=2, pp=2, dp=2, order="tp-cp-pp-dp")
    return tuple(p.groups(axis)[0][1] for axis in p.axes)


def data_groups(order: str, **sizes: int) -> Value:
    return tuple(str(group) for group in Parallelism(**sizes, order=order).groups("dp"))


def activations_in_sbh(shape: ModelShape, training: Training, tp: int) -> float:
    """Activations of one layer and micro-batch in units of s b h. Bytes."""
    shape = replace(shape, layers=1, vocab=1)
    run = Request(Parallelism(tp=tp), model=shape, batch=Batch(1), training=training)
    more = replace(run, model=replace(shape, layers=2))
    single, double = memory(run), memory(more)
    assert single is not None
    assert double is not None
    return (double.activations - single.activations) / (shape.sequence * shape.hidden)


KEEP_ALL = Training(recompute=Recompute.NONE, dropout=True)

OURS = {
    "3": sizes,
    "3b": tokens,
    "3c": lambda: billions(LLAMA3, MIXTRAL, DEEPSEEK_V3),
    "3d": lambda: active_billions(MIXTRAL, DEEPSEEK_V3),
    "5": first_groups,
    "6": lambda: tuple(data_groups("tp-dp-pp", tp=2, dp=3, pp=4)[i] for i in (0, 1, -1)),
    "6b": lambda: data_groups("tp-pp-dp", tp=2, pp=2, dp=2),
    "7": lambda: tuple(round(float(Pipeline(16, 8, m).bubble), 4) for m in (16, 32)),
    "8": lambda: days(GPT3, 300e9, 1_024, 140),
    "8b": lambda: billions(GPT3, ONE_TRILLION),
    "8c": lambda: steps_of(GPT3),
    "8d": lambda: (activations_in_sbh(GPT3, KEEP_ALL, 1), activations_in_sbh(GPT3, KEEP_ALL, 8)),
    "9": lambda: days(ONE_TRILLION, 450e9, 3_072, 163),
    "32": lambda: (gathered_mb(8), gathered_mb(128)),
}
