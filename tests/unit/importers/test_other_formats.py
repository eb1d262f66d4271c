"""YAML of Accelerate and MaxText, and configurations that are Python."""

import pytest

from importers.jobs.draft import FORMATS
from tests.unit.importers.conftest import Importing, Refusing
from tests.unit.importers.test_launch_scripts import LLAMA

ACCELERATE = """
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true, fsdp_offload_params: true}
mixed_precision: bf16
num_machines: 4
num_processes: 32
dynamo_config: {dynamo_backend: INDUCTOR}
"""
MAXTEXT = """
base_config: base.yml
model_name: llama3.1-70b
ici_fsdp_parallelism: 8
dcn_fsdp_parallelism: -1
per_device_batch_size: 2
max_target_length: 8192
remat_policy: full
quantization: fp8
sa_block_q: 512
"""
TITAN = """
def llama3_8b():
    return Trainer.Config(training=TrainingConfig(local_batch_size=2, seq_len=4096),
        compile=CompileConfig(enable=True))

def llama3_70b():
    return Trainer.Config(parallelism=ParallelismConfig(tensor_parallel_degree=8))
"""


def test_accelerate_says_ranks_and_sharding(imported: Importing) -> None:
    draft = imported("a.yaml", ACCELERATE, model=LLAMA | {"model.sequence": 4096})
    request = draft.checked().request
    assert request.parallelism.dp == 32
    training = request.training
    assert (training.data_parallel.value, training.recompute.value) == ("zero3", "full")
    assert "not represented: fsdp_config.fsdp_offload_params" in draft.notes
    assert "not represented: dynamo_config (line 7)" in draft.notes


def test_maxtext_has_axes_of_slices_and_a_named_model(
    imported: Importing, refused: Refusing
) -> None:
    draft = imported("m.yml", MAXTEXT, gpus=64)
    request = draft.checked().request
    assert request.model is not None
    assert (request.parallelism.dp, request.model.layers, request.model.dtype) == (64, 80, "fp8")
    assert request.batch is not None
    assert request.batch.global_sequences == 128
    assert draft.notes == ["not represented: sa_block_q (line 10)"]
    assert "dcn_fsdp_parallelism is -1" in refused("m.yml", MAXTEXT)[0]


def test_a_registry_of_torchtitan_has_several_recipes(
    imported: Importing, refused: Refusing
) -> None:
    assert "--recipe: is needed, one of llama3_8b, llama3_70b" in refused("c.py", TITAN, gpus=64)[0]
    request = imported("c.py", TITAN, gpus=64, recipe="llama3_70b").checked().request
    assert (request.parallelism.tp, request.parallelism.dp, request.model.layers) == (8, 8, 80)
    draft = imported("c.py", TITAN, gpus=8, recipe="llama3_8b")
    assert draft.checked().request.model.sequence == 4096
    assert "not represented: compile.enable (line 4)" in draft.notes


def test_other_files_say_which_formats_there_are(refused: Refusing) -> None:
    assert refused("x.yaml", "a: 1") == [f"x.yaml: is of no format that is read: {FORMATS}"]
    assert FORMATS in refused("x.py", "a = 1")[0]


MUON = "its state is counted as Adam's"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.toml", '[model]\nname = "llama3"\nflavor = "8B"\n[optimizer]\nname = "Muon"\n'),
        ("d.json", '{"bf16": {}, "train_batch_size": 8, "optimizer": {"type": "Muon"}}'),
        (
            "n.py",
            "import nemo\ndef f():\n    r = llm.llama3_8b.pretrain_recipe()\n"
            '    r.optim.config.optimizer = "muon"\n    r.model.config.cpu_offloading = True\n'
            "    return r\n",
        ),
    ],
)
def test_another_optimizer_than_adam_is_named(imported: Importing, name: str, text: str) -> None:
    notes = imported(name, text, gpus=8).notes
    assert any(note.endswith(MUON) for note in notes), notes
    if name == "n.py":
        assert "not represented: model.config.cpu_offloading (line 5)" in notes


def test_keys_of_toml_without_a_key_of_a_job_are_named(imported: Importing) -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[compile]\nenable = true\n[job]\ndump = "x"\n'
    assert "not represented: compile.enable (line 5)" in imported("t.toml", text, gpus=8).notes
    off = imported("t.toml", text.replace("true", "false"), gpus=8).notes
    assert not any("represented" in note for note in off)
