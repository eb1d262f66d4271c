"""Memory of GPUs as published; docs/memory.md has each figure beside ours.

Sources: TorchTitan (pytorch/torchtitan at b5bcd76c, benchmarks/ and components/quantization/, and
issue 929): the peak of reserved memory. Megatron-LM (NVIDIA/Megatron-LM at d98e8a64,
tests/functional_tests/test_cases/gpt/, golden values of `mem-max-allocated-bytes`): the peak of
allocated memory. BLOOM (bigscience-workshop/bigscience at 9e64edec, train/tr11-176B-ml/
chronicles-prequel.md): what the driver shows, in whole GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from placement.workload.memory import GIB, memory
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from placement.workload.training import Batch, DataParallel, ModelShape, Recompute, Sync, Training
from scripts.published import Value


@dataclass(frozen=True, slots=True)
class Figure:
    """One published figure. `peak`: which of `MemoryUse` its source shows. GiB."""

    source: str
    what: str
    gib: float
    peak: str
    request: Request

    @property
    def ours(self) -> float:
        use = memory(self.request)
        assert use is not None
        return float(getattr(use, self.peak)) / GIB

    @property
    def error(self) -> float:
        return self.ours / self.gib - 1


LLAMA3_8B = ModelShape(32, 4_096, 14_336, 32, 8, 128_256, 8_192)
LLAMA3_70B = ModelShape(80, 8_192, 28_672, 64, 8, 128_256, 8_192)
LLAMA3_405B = ModelShape(126, 16_384, 53_248, 128, 8, 128_256, 8_192)
QWEN3_8B = ModelShape(36, 4_096, 12_288, 32, 8, 151_936, 2_048, head_dim=128)
MEGATRON_7B = ModelShape(32, 4_096, 16_384, 32, 8, 131_584, 8_192, gated=False)

FULL = {"recompute": Recompute.FULL}
COMPILED_LOSS, LOSS_IN_CHUNKS = {"logit_bytes": 4}, {"logit_bytes": 2}
PIPELINED = {"data_parallel": DataParallel.FSDP, "sync": Sync.STEP, **FULL}


def titan(
    what: str, gib: float, model: ModelShape, axes: dict[str, int], batch: Batch, **how: Any
) -> Figure:
    """TorchTitan: FSDP2, which gathers and scatters layer by layer."""
    training = Training(
        **{"data_parallel": DataParallel.ZERO3, "sync": Sync.MICRO_BATCH, **how},  # type: ignore[arg-type]
    )
    request = Request(Parallelism(**axes), model=model, batch=batch, training=training)
    return Figure("TorchTitan", what, gib, "reserved", request)


def torchtitan() -> Iterator[Figure]:
    for gpus, eager, compiled, float8 in ((8, 82.4, 77.0, 76.8), (128, 67.0, 62.0, 61.8)):
        for name, gib in (("", eager), (", compiled", compiled), (", float8", float8)):
            what = f"8B, {gpus} H100, batch 2, selective{name}"
            yield titan(what, gib, LLAMA3_8B, {"dp": gpus}, Batch(2 * gpus, 2))
    long = lambda model, cp: replace(model, sequence=32_768 * cp)  # noqa: E731
    for cp, gib in ((1, 83.9), (2, 84.2), (4, 84.0), (8, 84.5)):
        axes, batch = {"cp": cp, "dp": 8 // cp}, Batch(8 // cp)
        yield titan(
            f"8B, 8 H100, CP {cp}, 32K a GPU", gib, long(LLAMA3_8B, cp), axes, batch, **FULL
        )
    for name, gib in (("", 71.9), (", async TP", 67.6)):
        axes, batch = {"tp": 8, "dp": 32}, Batch(512, 16)
        yield titan(f"70B, 256 H100, TP 8, batch 16{name}", gib, LLAMA3_70B, axes, batch, **FULL)
    axes = {"tp": 8, "pp": 8, "dp": 8}
    for name, gib, batch in (
        ("1F1B, 8 micro-batches of 4", 82.5, Batch(256, 4)),
        ("interleaved, 8 micro-batches of 4", 72.7, Batch(256, 4, 2)),
    ):
        yield titan(f"405B, 512 H100, {name}", gib, LLAMA3_405B, axes, batch, **PIPELINED)
    for cp, gib in ((1, 75.3), (2, 75.9), (4, 77.1), (8, 84.9)):
        axes = {"tp": 8, "cp": cp, "pp": 8, "dp": 8 // cp}
        what, model = f"405B, 512 H100, CP {cp}, 32K a GPU", long(LLAMA3_405B, cp)
        yield titan(what, gib, model, axes, Batch(64 // cp), **PIPELINED)
    what = "8B, 8 H100, batch 1 (issue 929)"
    yield titan(what, 47.65, LLAMA3_8B, {"dp": 8}, Batch(8))
    for gpus, gib in ((32, 47.96), (64, 46.97)):
        batch, what = Batch(2 * gpus, 2), f"8B, {gpus} H200, batch 2, loss compiled"
        yield titan(what, gib, LLAMA3_8B, {"dp": gpus}, batch, **COMPILED_LOSS)
    what, short = "8B, 4 GPUs, 32 x 2K, loss in chunks", replace(LLAMA3_8B, sequence=2_048)
    yield titan(what, 174.49, short, {"dp": 4}, Batch(128, 32), **LOSS_IN_CHUNKS)
    what = "Qwen3 8B, 4 GPUs, 16 x 2K, loss in chunks"
    yield titan(what, 112.88, QWEN3_8B, {"dp": 4}, Batch(64, 16), **LOSS_IN_CHUNKS)
    what = "8B, 8 B200, batch 1, loss in chunks"
    yield titan(what, 33.71, LLAMA3_8B, {"dp": 8}, Batch(8), **LOSS_IN_CHUNKS)


def megatron() -> Iterator[Figure]:
    how = {"data_parallel": DataParallel.ZERO1, "recompute": Recompute.NONE, "dropout": True}
    for gpu, tensor, pipeline in (
        ("H100", 53.22, 56.55),
        ("A100", 54.19, 56.33),
        ("GB200", 54.22, 56.36),
    ):
        for what, gib, model, p, batch, sequences in (
            ("TP 4, batch 2", tensor, MEGATRON_7B, Parallelism(tp=4, dp=2), Batch(8, 2), False),
            (
                *("PP 4, 8 chunks", pipeline, replace(MEGATRON_7B, vocab=131_200)),
                *(Parallelism(pp=4, dp=2), Batch(8, 1, 8), True),
            ),
        ):
            training = Training(sequence_parallel=sequences, **how)  # type: ignore[arg-type]
            request = Request(p, model=model, batch=batch, training=training)
            yield Figure("Megatron-LM", f"7B, 8 {gpu}, {what}", gib, "allocated", request)


# hidden, layers, heads: (dp, tp, pp, micro-batch, sequences a step, GB)
FP16 = {
    (14_400, 8, 32): ((1, 8, 1, 1, 2_048, 67),),
    (14_400, 80, 96): (
        *((1, 8, 10, 1, 2_048, 73), (2, 8, 10, 1, 2_048, 51), (12, 8, 4, 1, 2_040, 47)),
        *((9, 8, 5, 1, 2_043, 44), (6, 8, 8, 1, 2_046, 36), (4, 8, 10, 1, 2_048, 35)),
        *((4, 8, 10, 2, 2_048, 43), (4, 8, 10, 4, 2_048, 55), (4, 8, 10, 8, 2_048, 76)),
    ),
    (14_400, 78, 96): (
        *((8, 8, 6, 1, 2_048, 39), (8, 8, 6, 2, 2_048, 45)),
        *((8, 8, 6, 4, 2_048, 56), (8, 8, 6, 8, 2_048, 75)),
    ),
    (13_824, 80, 96): (
        *((4, 8, 10, 1, 2_048, 33), (4, 8, 10, 2, 2_048, 39)),
        *((4, 8, 10, 4, 2_048, 53), (4, 8, 10, 8, 2_048, 73)),
    ),
    (14_336, 72, 64): (
        *((4, 8, 12, 1, 2_048, 29), (4, 8, 12, 2, 2_048, 37), (4, 8, 12, 4, 2_048, 49)),
        *((4, 8, 12, 8, 2_048, 69), (8, 8, 6, 1, 2_048, 38), (8, 8, 6, 2, 2_048, 44)),
        *((8, 8, 6, 4, 2_048, 56), (6, 8, 8, 4, 2_016, 52), (12, 8, 4, 2, 2_016, 53)),
        *((12, 8, 4, 4, 2_016, 59), (24, 8, 2, 1, 2_016, 65), (24, 8, 2, 2, 2_016, 76)),
        *((8, 4, 12, 4, 2_048, 60), (8, 4, 12, 2, 2_048, 44), (16, 4, 6, 4, 2_048, 75)),
        *((16, 4, 6, 2, 2_048, 57), (16, 2, 12, 2, 2_048, 63), (8, 2, 24, 1, 2_048, 44)),
        (8, 2, 24, 2, 2_048, 53),
    ),
    (13_824, 84, 64): (
        *((4, 8, 12, 2, 2_048, 39), (4, 8, 12, 4, 2_048, 52), (8, 8, 6, 4, 2_048, 56)),
    ),
    (12_288, 96, 64): ((8, 1, 48, 1, 2_048, 58),),
}
BF16 = {
    (12_288, 106, 64): ((8, 4, 12, 2, 2_048, 67), (8, 4, 12, 4, 2_048, 79)),
    (12_288, 100, 64): ((8, 8, 6, 2, 2_048, 61), (8, 8, 6, 4, 2_048, 72)),
    (13_312, 82, 64): (
        *((4, 8, 12, 4, 2_048, 52), (8, 4, 12, 2, 2_048, 63), (8, 4, 12, 4, 2_048, 74)),
    ),
    (13_312, 94, 64): ((8, 4, 12, 2, 2_048, 67),),
    (14_336, 70, 64): (
        *((4, 8, 12, 2, 2_048, 40), (8, 4, 12, 2, 2_048, 59), (8, 4, 12, 4, 2_048, 73)),
    ),
}


def bloom(dtype: str, gradients: str) -> Iterator[Figure]:
    """DeepSpeed's ZeRO-1 under Megatron: everything is computed again, V = 250,880, s = 2,048."""
    training = Training(
        data_parallel=DataParallel.ZERO1,
        gradient_dtype=gradients,
        sequence_parallel=False,
        recompute=Recompute.FULL,
    )
    for (hidden, layers, heads), runs in (FP16 if dtype == "fp16" else BF16).items():
        model = ModelShape(
            *(layers, hidden, 4 * hidden, heads, heads, 250_880, 2_048),
            dtype=dtype,
            gated=False,
            tied_embeddings=True,
        )
        for dp, tp, pp, micro, sequences, gib in runs:
            p = Parallelism(tp=tp, pp=pp, dp=dp)
            request = Request(p, model=model, batch=Batch(sequences, micro), training=training)
            what = f"{layers} layers of {hidden}, TP {tp} PP {pp} DP {dp}, batch {micro}, {dtype}"
            yield Figure("BLOOM", what, gib, "total", request)


def figures() -> list[Figure]:
    """All, in the order of docs/memory.md."""
    return [*torchtitan(), *megatron(), *bloom("fp16", "fp16"), *bloom("bf16", "fp32")]


def furthest(runs: Iterator[Figure]) -> Value:
    """The largest error, in percent and with its sign."""
    return 100 * max((figure.error for figure in runs), key=abs)


def ordered() -> Value:
    """Interleaved with half the micro-batch needs less than 1F1B."""
    first, second = (f for f in torchtitan() if "1F1B" in f.what or "interleaved" in f.what)
    return second.ours / first.ours


OURS = {
    "44": lambda: furthest(f for f in torchtitan() if "B200" not in f.what),
    "44b": lambda: furthest(f for f in torchtitan() if "B200" in f.what),
    "44c": ordered,
    "44d": lambda: furthest(megatron()),
    "44e": lambda: furthest(bloom("fp16", "fp16")),
    "44f": lambda: furthest(bloom("bf16", "fp32")),
}
