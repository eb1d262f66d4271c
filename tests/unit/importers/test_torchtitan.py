"""TorchTitan configurations as jobs."""

from typing import Any

import pytest

from placement.workload.flops import active_parameter_count, parameter_count
from placement.workload.parallelism import Parallelism
from placement.workload.training import Batch, Training
from tests.build import LLAMA3, training
from tests.unit.importers.conftest import Importing, Refusing

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


@pytest.mark.parametrize(
    ("converter", "section", "dtype"),
    [
        ("quantize.linear.float8", "", "fp8"),
        ("float8", "", "fp8"),
        ("quantize.linear.mx", '[quantize.linear.mx]\nrecipe_name = "mxfp8_cublas"', "mxfp8"),
    ],
)
def test_a_converter_of_linear_layers_is_their_precision(
    imported: Importing, converter: str, section: str, dtype: str
) -> None:
    named = LLAMA.replace('flavor = "405B"', f'flavor = "405B"\nconverters = ["{converter}"]')
    model = imported("llama.toml", named + section, gpus=512).checked().request.model
    assert model is not None
    assert model.dtype == dtype


def test_an_unknown_converter_is_not_dropped(refused: Refusing) -> None:
    named = LLAMA.replace(
        'flavor = "405B"', 'flavor = "405B"\nconverters = ["quantize.linear.fp6"]'
    )
    assert refused("llama.toml", named, gpus=512) == [
        "llama.toml:7: model.converters: 'quantize.linear.fp6' is not a known converter"
    ]


def test_under_a_pipeline_parameters_are_kept(imported: Importing) -> None:
    text = LLAMA.replace("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 4")
    text = text.replace("'full' #", "'none' #").replace("_size = 2", "_size = 16")
    request = imported("llama.toml", text, gpus=512).checked().request
    assert request.training == Training()
    assert request.batch == Batch(256, 1)


def test_older_places_of_the_same_keys(imported: Importing) -> None:
    old = LLAMA.replace("local_batch_size", "batch_size").replace(
        "[parallelism]", "[experimental]\ncontext_parallel_degree = 2\n\n[parallelism]"
    )
    request = imported("old.toml", old, gpus=512).checked().request
    assert (request.parallelism.cp, request.parallelism.dp) == (2, 32)
    assert request.batch == Batch(64, 2)


def test_replicas_of_shards(imported: Importing) -> None:
    text = LLAMA.replace("replicate_degree = 1", "replicate_degree = 4")
    request = imported("hsdp.toml", text, gpus=512).checked().request
    assert (request.parallelism.dp, request.training.shard_group) == (64, 16)


def test_replicas_alone_are_ddp(imported: Importing) -> None:
    text = LLAMA.replace("replicate_degree = 1", "replicate_degree = 4")
    text = text.replace("shard_degree = -1", "shard_degree = 1")
    request = imported("ddp.toml", text).checked().request
    assert request.parallelism.dp == 4
    assert request.training.data_parallel == "ddp"


def test_deepseek_v3_with_experts_over_dp(imported: Importing) -> None:
    text = """
[model]
name = "deepseek_v3"
flavor = "671B"
[training]
local_batch_size = 4
seq_len = 4096
[parallelism]
tensor_parallel_degree = 8
expert_parallel_degree = 64
expert_tensor_parallel_degree = 1
data_parallel_shard_degree = 32
"""
    request = imported("moe.toml", text).checked().request
    assert request.model is not None
    assert parameter_count(request.model) == pytest.approx(671e9, rel=1e-3)
    assert active_parameter_count(request.model) == pytest.approx(37e9, rel=0.02)
    assert (request.parallelism.tp, request.parallelism.ep, request.parallelism.dp) == (8, 8, 4)
    assert request.training.expert_tp == 1


@pytest.mark.parametrize(("flavor", "billions"), [("16B", 15.7), ("236B", 236), ("671B", 671)])
def test_models_are_as_large_as_their_reports_say(
    imported: Importing, flavor: str, billions: float
) -> None:
    text = LLAMA.replace("llama3", "deepseek_v3").replace("405B", flavor)
    model = imported("moe.toml", text, gpus=512).checked().request.model
    assert model is not None
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
    text = LLAMA.replace(
        "pipeline_parallel_degree = 1",
        f'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "{schedule}"',
    )
    draft = imported("pp.toml", text, gpus=512)
    batch = draft.checked().request.batch
    assert batch is not None
    assert (batch.virtual_stages, batch.schedule) == (chunks, known)
    assert any("counted as interleaved" in n for n in draft.notes) == (schedule == "LoopedBFS")


def test_layers_per_stage_say_how_many_chunks(imported: Importing) -> None:
    text = LLAMA.replace(
        "pipeline_parallel_degree = 1",
        'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "Interleaved1F1B"\n'
        "pipeline_parallel_layers_per_stage = 4",
    )
    batch = imported("pp.toml", text, gpus=512).checked().request.batch
    assert batch is not None
    assert batch.virtual_stages == 8


def test_a_model_from_elsewhere_keeps_the_sequence_of_the_file(imported: Importing) -> None:
    shape = {"layers": 16, "hidden": 64, "ffn": 128, "heads": 8, "kv_heads": 8, "vocab": 100}
    given = {f"model.{key}": value for key, value in {**shape, "sequence": 9}.items()}
    text = LLAMA.replace("405B", "mine")
    model = imported("a.toml", text, gpus=512, model=given).checked().request.model
    assert model is not None
    assert (model.layers, model.sequence) == (16, 8_192)


def test_what_is_not_represented_is_listed(imported: Importing) -> None:
    text = LLAMA + "[float8]\nenable_fsdp_float8_all_gather = true\n"
    assert imported("f8.toml", text, gpus=512).notes == [
        "not represented: float8.enable_fsdp_float8_all_gather (line 21)"
    ]


@pytest.mark.parametrize(
    ("text", "given", "line"),
    [
        (LLAMA, {}, "a.toml: --gpus: is needed"),
        (
            LLAMA.replace("degree = -1", "degree = 3"),
            {"gpus": 64},
            "a.toml:14: parallelism.data_parallel_shard_degree: tp 8 x cp 1 x pp 1",
        ),
        (
            LLAMA.replace("405B", "9B"),
            {"gpus": 64},
            "a.toml:6: model.flavor: the shape of llama3 9B",
        ),
        (
            LLAMA.replace("8192", '"8k"'),
            {"gpus": 64},
            "a.toml:10: training.seq_len: must be a whole",
        ),
        ("[a\n", {}, "a.toml:1: is not TOML"),
        ("a = 1\n", {}, "a.toml: has none of TorchTitan's keys"),
    ],
)
def test_faults_name_the_key_and_its_line(
    refused: Refusing, text: str, given: dict[str, Any], line: str
) -> None:
    [found] = refused("a.toml", text, **given)
    assert found.startswith(line)


def test_gradients_may_be_reduced_in_half_precision(imported: Importing) -> None:
    text = LLAMA.replace("seq_len = 8192", 'seq_len = 8192\nmixed_precision_reduce = "bfloat16"')
    request = imported("llama.toml", text, gpus=512).checked().request
    assert request.training.gradient_dtype == "bf16"
