"""DeepSpeed configurations as jobs."""

import json
from typing import Any

import pytest

from placement.workload.training import Batch
from tests.build import training
from tests.unit.importers.conftest import Importing, Refusing

MODEL = {
    "model.layers": 32,
    "model.hidden": 4_096,
    "model.ffn": 14_336,
    "model.heads": 32,
    "model.kv_heads": 8,
    "model.vocab": 32_000,
    "model.sequence": 4_096,
}
ZERO3 = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "overlap_comm": True},
}


def text(**changes: Any) -> str:
    return json.dumps({**ZERO3, **changes}, indent=2)


def test_zero_3(imported: Importing) -> None:
    request = imported("ds.json", text(), gpus=64, model=MODEL).checked().request
    assert (request.parallelism.dp, request.batch) == (64, Batch(2_048, 4))
    assert request.training == training(
        data_parallel="zero3", sync="micro_batch", gradient_dtype="bf16"
    )
    assert request.model is not None
    assert request.model.dtype == "bf16"


@pytest.mark.parametrize(
    ("stage", "strategy", "sync"),
    [(0, "ddp", "step"), (1, "zero1", "step"), (2, "zero2", "micro_batch")],
)
def test_stages(imported: Importing, stage: int, strategy: str, sync: str) -> None:
    draft = imported("ds.json", text(zero_optimization={"stage": stage}), gpus=8)
    how = draft.checked().request.training
    assert (how.data_parallel, how.sync) == (strategy, sync)


def test_the_batch_sizes_say_how_many_replicas(imported: Importing) -> None:
    request = imported("ds.json", text(train_batch_size=1_024)).checked().request
    assert (request.parallelism.dp, request.batch) == (32, Batch(1_024, 4))


def test_one_batch_size_follows_from_the_others(imported: Importing) -> None:
    sizes = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": 1_024}
    request = imported("ds.json", text(**sizes), gpus=64).checked().request
    assert request.batch == Batch(1_024, 2)


def test_axes_of_the_program_are_given_by_hand(imported: Importing) -> None:
    keys = {"parallelism.tp": 4, "parallelism.pp": 2}
    draft = imported("ds.json", text(), gpus=64, keys=keys)
    p = draft.checked().request.parallelism
    assert (p.tp, p.pp, p.dp, p.order) == (4, 2, 8, "tp-cp-ep-dp-pp")
    assert not any("training program" in note for note in draft.notes)


def test_ulysses_is_context_parallel(imported: Importing) -> None:
    request = imported("ds.json", text(sequence_parallel_size=4), gpus=64).checked().request
    assert (request.parallelism.cp, request.parallelism.dp) == (4, 16)
    assert request.training.context_parallel == "ulysses"


def test_mics_is_a_shard_group(imported: Importing) -> None:
    zero = {"stage": 3, "mics_shard_size": 8}
    how = imported("ds.json", text(zero_optimization=zero), gpus=64, model=MODEL)
    assert how.checked().request.training.shard_group == 8
    off = imported("ds.json", text(zero_optimization={**zero, "mics_shard_size": -1}), gpus=64)
    assert off.checked().request.training.shard_group == 0


def test_a_model_without_a_sequence_is_asked_for_it(refused: Refusing) -> None:
    model = {key: value for key, value in MODEL.items() if key != "model.sequence"}
    assert refused("ds.json", text(), gpus=8, model=model) == [
        "ds.json: --set model.sequence: must be given: no file has the sequence length"
    ]


def test_what_is_missing_and_not_represented_is_said(imported: Importing) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "zero_quantized_weights": True}
    notes = imported("ds.json", text(zero_optimization=zero), gpus=64).notes
    assert any(note.startswith("no model") for note in notes)
    assert any("training program" in note for note in notes)
    assert "not represented: zero_optimization.offload_optimizer (line 9)" in notes
    assert "not represented: zero_optimization.zero_quantized_weights (line 12)" in notes


@pytest.mark.parametrize(
    ("content", "given", "line"),
    [
        (text(), {}, "ds.json: --gpus: is needed"),
        (text(), {"gpus": 9, "keys": {"parallelism.tp": 2}}, "ds.json: --gpus: 9 GPUs are not"),
        (
            text(train_micro_batch_size_per_gpu="auto"),
            {"gpus": 8},
            "ds.json:2: train_micro_batch_size_per_gpu: does not follow",
        ),
        (
            text(zero_optimization={"stage": 4}),
            {"gpus": 8},
            "ds.json:8: zero_optimization.stage: must be 0 to 3, is 4",
        ),
        (
            text(gradient_accumulation_steps=1.5),
            {"gpus": 8},
            "ds.json:3: gradient_accumulation_steps: must be a whole number, is 1.5",
        ),
        ('{\n"a": \n', {}, "ds.json:3: is not JSON"),
        ("[1]", {}, "ds.json: must be a mapping"),
        ('{"a": 1}', {}, "ds.json: has none of DeepSpeed's keys"),
        ("[" * 100_000, {}, "ds.json: is not JSON: is nested too deeply"),
    ],
)
def test_faults_name_the_key_and_its_line(
    refused: Refusing, content: str, given: dict[str, Any], line: str
) -> None:
    [found] = refused("ds.json", content, **given)
    assert found.startswith(line)


def test_what_the_trainer_fills_in_can_be_given(imported: Importing) -> None:
    """The stock configuration of Hugging Face's trainer leaves the batch to it."""
    auto = dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu"), "auto")
    body = json.dumps({**auto, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}})
    draft = imported("hf.json", body, gpus=64, keys={"batch.micro_sequences": 2})
    assert draft.values["batch.global_sequences"] == 2 * 64
    keys = {"batch.micro_sequences": 2, "batch.global_sequences": 512}
    assert imported("hf.json", body, gpus=64, keys=keys).values["batch.global_sequences"] == 512
