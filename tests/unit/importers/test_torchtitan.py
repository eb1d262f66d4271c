"""TorchTitan configurations as jobs."""

import pytest

from placement.workload.flops import active_parameter_count, parameter_count
from placement.workload.parallelism import Parallelism
from placement.workload.training import Batch
from tests.build import LLAMA3, training
from tests.unit.importers.conftest import Importing, Refusing, assert_facts

LLAMA = """\
[job]
description = "Llama 3 405B training"

[model]
name = "llama3"
flavor = "405B"

[training]
local_batch_size = 2
seq_len = 8192

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8  # 8-way TP
pipeline_parallel_degree = 1

[activation_checkpoint]
mode = 'full' # ['none', 'selective', 'full']
"""


def test_llama_3_405b(imported: Importing) -> None:
    """Without a pipeline FSDP gathers twice, for each micro-batch; the mesh has pp outermost."""
    request = imported("llama.toml", LLAMA, gpus=512).checked().request
    assert request.model == LLAMA3
    assert request.parallelism == Parallelism(tp=8, dp=64, order="tp-cp-ep-dp-pp")
    assert request.batch == Batch(128, 2)
    assert request.training == training(data_parallel="zero3", sync="micro_batch", recompute="full")


NAMED = 'flavor = "405B"'
PIPELINE = "pipeline_parallel_degree = 1"
COPIES = "data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = -1"
MX = 'converters = ["quantize.linear.mx"]\n[quantize.linear.mx]\nrecipe_name = "mxfp8_cublas"'
STAGES = 'pipeline_parallel_schedule = "Interleaved1F1B"\npipeline_parallel_layers_per_stage = 4'
OLDER = "[experimental]\ncontext_parallel_degree = 2\n"


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        (NAMED, f'{NAMED}\nconverters = ["quantize.linear.float8"]', "dtype=fp8"),
        (NAMED, f'{NAMED}\nconverters = ["float8"]', "dtype=fp8"),
        (NAMED, f"{NAMED}\n{MX}", "dtype=mxfp8"),
        (PIPELINE, f"{PIPELINE[:-1]}4", "data_parallel=fsdp sync=step micro_sequences=1"),
        (PIPELINE, f"{PIPELINE[:-1]}4\n{STAGES}", "virtual_stages=8"),
        ("local_batch_size", "batch_size", "global_sequences=128 micro_sequences=2"),  # older
        ("[parallelism]", f"{OLDER}\n[parallelism]", "cp=2 dp=32 global_sequences=64"),
        ("replicate_degree = 1", "replicate_degree = 4", "dp=64 shard_group=16"),
        (COPIES, COPIES.replace("= 1", "= 64").replace("-1", "1"), "dp=64 data_parallel=ddp"),
        ("seq_len", 'mixed_precision_reduce = "bfloat16"\nseq_len', "gradient_dtype=bf16"),
    ],
)
def test_what_keys_of_the_file_mean(imported: Importing, old: str, new: str, facts: str) -> None:
    assert_facts(imported("llama.toml", LLAMA.replace(old, new), gpus=512), facts)


def test_experts_lie_over_the_ranks_of_dp(imported: Importing) -> None:
    experts = "[parallelism]\nexpert_parallel_degree = 64\nexpert_tensor_parallel_degree = 1"
    text = LLAMA.replace("llama3", "deepseek_v3").replace("405B", "671B")
    draft = imported("moe.toml", text.replace("[parallelism]", experts), gpus=256)
    assert_facts(draft, "tp=8 ep=8 dp=4 expert_tp=1")
    model = draft.checked().request.model
    assert active_parameter_count(model) == pytest.approx(37e9, rel=0.02)


@pytest.mark.parametrize(("flavor", "billions"), [("16B", 15.7), ("236B", 236), ("671B", 671)])
def test_models_are_as_large_as_their_reports_say(
    imported: Importing, flavor: str, billions: float
) -> None:
    text = LLAMA.replace("llama3", "deepseek_v3").replace("405B", flavor)
    model = imported("moe.toml", text, gpus=512).checked().request.model
    assert parameter_count(model) == pytest.approx(billions * 1e9, rel=0.005)


@pytest.mark.parametrize(
    ("schedule", "chunks", "known"),
    [
        ("1F1B", 1, "1f1b"),
        ("Interleaved1F1B", 2, "1f1b"),
        ("ZBVZeroBubble", 2, "zero_bubble"),
        ("DualPipeV", 2, "dualpipe"),
        ("LoopedBFS", 2, "1f1b"),
    ],
)
def test_schedules(imported: Importing, schedule: str, chunks: int, known: str) -> None:
    pipeline = f'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "{schedule}"'
    text = LLAMA.replace(PIPELINE, pipeline)
    draft = imported("pp.toml", text, gpus=512)
    assert_facts(draft, f"virtual_stages={chunks} schedule={known}")
    assert any("counted as interleaved" in n for n in draft.notes) == (schedule == "LoopedBFS")


def test_a_model_from_elsewhere_keeps_the_sequence_of_the_file(imported: Importing) -> None:
    shape = {"layers": 16, "hidden": 64, "ffn": 128, "heads": 8, "kv_heads": 8, "vocab": 100}
    given = {f"model.{key}": value for key, value in {**shape, "sequence": 9}.items()}
    text = LLAMA.replace("405B", "mine")
    draft = imported("a.toml", text, gpus=512, model=given)
    assert_facts(draft, "layers=16 sequence=8192")


def test_what_is_not_represented_is_listed(imported: Importing) -> None:
    text = LLAMA + "[float8]\nenable_fsdp_float8_all_gather = true\n"
    assert imported("f8.toml", text, gpus=512).notes == [
        "not represented: float8.enable_fsdp_float8_all_gather (line 21)"
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("degree = -1", "degree = 3", "14: parallelism.data_parallel_shard_degree: tp 8 x cp 1 x"),
        ("405B", "9B", "6: model.flavor: the shape of llama3 9B"),
        ("8192", '"8k"', "10: training.seq_len: must be a whole"),
        (
            NAMED,
            f'{NAMED}\nconverters = ["quantize.linear.fp6"]',
            "7: model.converters: 'quantize.linear.fp6' is not a known converter",
        ),
        (LLAMA, "[a\n", "1: is not TOML"),
        (LLAMA, "a = " + "[" * 100_000, " is nested too deep"),
        (LLAMA, "a = 1\n", " has none of TorchTitan's keys"),
    ],
)
def test_faults_name_the_key_and_its_line(refused: Refusing, old: str, new: str, line: str) -> None:
    [found] = refused("a.toml", LLAMA.replace(old, new), gpus=64)
    assert found.startswith(f"a.toml:{line}")


def test_how_many_gpus_run_is_asked_for(refused: Refusing) -> None:
    [found] = refused("a.toml", LLAMA)
    assert found.startswith("a.toml: --gpus: is needed")
