"""DeepSpeed configurations as jobs."""

import json
from typing import Any

import pytest

from tests.unit.importers.conftest import Importing, Refusing, assert_facts

MODEL = {
    **{"model.layers": 32, "model.hidden": 4_096, "model.ffn": 14_336, "model.heads": 32},
    **{"model.kv_heads": 8, "model.vocab": 32_000, "model.sequence": 4_096},
}
MICRO = "train_micro_batch_size_per_gpu"
ZERO3 = {
    MICRO: 4,
    "gradient_accumulation_steps": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "overlap_comm": True},
}


def text(**changes: Any) -> str:
    return json.dumps({**ZERO3, **changes}, indent=2)


MICS = {"stage": 3, "mics_shard_size": 8}


@pytest.mark.parametrize(
    ("changes", "gpus", "facts"),
    [
        ({}, 64, "dp=64 global_sequences=2048 micro_sequences=4 data_parallel=zero3"),
        ({}, 64, "sync=micro_batch gradient_dtype=bf16 dtype=bf16"),
        ({"zero_optimization": {"stage": 0}}, 8, "data_parallel=ddp sync=step"),
        ({"zero_optimization": {"stage": 1}}, 8, "data_parallel=zero1 sync=step"),
        ({"zero_optimization": {"stage": 2}}, 8, "data_parallel=zero2 sync=micro_batch"),
        ({"train_batch_size": 1024}, 0, "dp=32 global_sequences=1024 micro_sequences=4"),
        ({MICRO: "auto", "train_batch_size": 1024}, 64, "global_sequences=1024 micro_sequences=2"),
        ({"sequence_parallel_size": 4}, 64, "cp=4 dp=16 context_parallel=ulysses"),
        ({"zero_optimization": MICS}, 64, "shard_group=8"),
        ({"zero_optimization": {**MICS, "mics_shard_size": -1}}, 64, "shard_group=0"),
    ],
)
def test_what_keys_mean(
    imported: Importing, changes: dict[str, Any], gpus: int, facts: str
) -> None:
    assert_facts(imported("ds.json", text(**changes), gpus=gpus, model=MODEL), facts)


def test_axes_of_the_program_are_given_by_hand(imported: Importing) -> None:
    keys = {"parallelism.tp": 4, "parallelism.pp": 2}
    draft = imported("ds.json", text(), gpus=64, keys=keys)
    assert_facts(draft, "tp=4 pp=2 dp=8 order=tp-cp-ep-dp-pp")
    assert not any("training program" in note for note in draft.notes)


def test_a_model_in_part_is_asked_for_all_that_is_missing_at_once(refused: Refusing) -> None:
    model = {key: MODEL[key] for key in MODEL if key not in ("model.layers", "model.sequence")}
    assert refused("ds.json", text(), gpus=8, model=model) == [
        "ds.json: --set model.layers: must be given: no file has it",
        "ds.json: --set model.sequence: must be given: no file has it",
    ]


def test_what_is_missing_and_not_represented_is_said(imported: Importing) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "zero_quantized_weights": True}
    notes = imported("ds.json", text(zero_optimization=zero), gpus=64).notes
    assert any(note.startswith("no model") for note in notes)
    assert any("training program" in note for note in notes)
    assert "not represented: zero_optimization.offload_optimizer (line 10)" in notes
    assert "not represented: zero_optimization.zero_quantized_weights (line 12)" in notes


GIVEN, STEPS = {"gpus": 8}, "gradient_accumulation_steps"


@pytest.mark.parametrize(
    ("content", "given", "line"),
    [
        (text(), {}, "ds.json: --gpus: is needed"),
        (text(), {"gpus": 9, "keys": {"parallelism.tp": 2}}, "ds.json: --gpus: 9 GPUs are not"),
        (text(**{MICRO: "auto"}), GIVEN, f"ds.json:2: {MICRO}: does not follow"),
        (
            text(zero_optimization={"stage": 4}),
            GIVEN,
            "ds.json:8: zero_optimization.stage: must be",
        ),
        (text(**{STEPS: 1.5}), GIVEN, f"ds.json:3: {STEPS}: must be a whole number, is 1.5"),
        ('{\n"a": \n', {}, "ds.json:3: is not JSON"),
        ("[1]", {}, "ds.json: must be a mapping"),
        ('{"a": 1}', {}, "ds.json: has none of DeepSpeed's keys"),
        ("[" * 100_000, {}, "ds.json: is nested too deep"),
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
