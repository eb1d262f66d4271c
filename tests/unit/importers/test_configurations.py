"""YAML of Accelerate and MaxText, configurations that are Python, and other keys of none."""

from pathlib import Path

import pytest

from importers.jobs.draft import FORMATS
from tests.unit.importers.conftest import Importing, Refusing, assert_facts
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
    assert_facts(draft, "dp=32 data_parallel=zero3 recompute=full")
    assert "not represented: fsdp_config.fsdp_offload_params" in draft.notes
    assert "not represented: dynamo_config.dynamo_backend (line 7)" in draft.notes


def test_maxtext_has_axes_of_slices_and_a_named_model(
    imported: Importing, refused: Refusing
) -> None:
    draft = imported("m.yml", MAXTEXT, gpus=64)
    assert_facts(draft, "dp=64 layers=80 dtype=fp8 global_sequences=128")
    assert draft.notes == ["not represented: sa_block_q (line 10)"]
    assert "dcn_fsdp_parallelism is -1" in refused("m.yml", MAXTEXT)[0]


def test_a_registry_of_torchtitan_has_several_recipes(
    imported: Importing, refused: Refusing
) -> None:
    assert "--recipe: is needed, one of llama3_8b, llama3_70b" in refused("c.py", TITAN, gpus=64)[0]
    assert_facts(imported("c.py", TITAN, gpus=64, recipe="llama3_70b"), "tp=8 dp=8 layers=80")
    draft = imported("c.py", TITAN, gpus=8, recipe="llama3_8b")
    assert_facts(draft, "sequence=4096")
    assert "not represented: compile.enable (line 4)" in draft.notes


def test_other_files_say_which_formats_there_are(refused: Refusing) -> None:
    assert refused("x.yaml", "a: 1") == [f"x.yaml: is of no format that is read: {FORMATS}"]
    assert FORMATS in refused("x.py", "a = 1")[0]


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
    assert any(note.endswith("its state is counted as Adam's") for note in notes), notes
    if name == "n.py":
        assert "not represented: model.config.cpu_offloading (line 5)" in notes


def test_keys_of_toml_without_a_key_of_a_job_are_named(imported: Importing) -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[compile]\nenable = true\n[job]\ndump = "x"\n'
    assert "not represented: compile.enable (line 5)" in imported("t.toml", text, gpus=8).notes
    off = imported("t.toml", text.replace("true", "false"), gpus=8).notes
    assert not any("represented" in note for note in off)


# --- recipes of NeMo 2 and of Megatron-Bridge, which are read and not run ------------

COMMON = """
def base():
    cfg = ConfigContainer(
        model=None,
        train=TrainingConfig(global_batch_size=32, micro_batch_size=2, train_iters=10),
        ddp=DistributedDataParallelConfig(use_distributed_optimizer=True),
        dataset=GPTDatasetConfig(seq_length=4096),
        mixed_precision="bf16_mixed",
    )
    return cfg

def slim(cfg):
    cfg.ddp.grad_reduce_in_fp32 = False

def low(kind):
    if kind == "bf16":
        cfg = bf16_mixed()
    elif kind == "fp8_mx":
        cfg = MixedPrecisionConfig(bf16=True, fp8="e4m3", fp8_recipe="mxfp8")
    else:
        raise ValueError(kind)
    return cfg
"""
BRIDGE = """
from megatron.bridge.recipes.common import base, low as lower, slim

def llama3_70b_pretrain_64gpu_gb200_config():
    cfg = base()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-70B").to_provider(load=False)
    cfg.mixed_precision = lower("fp8_mx")
    cfg.model.tensor_model_parallel_size = cfg.model.context_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.sequence_parallel = True
    cfg.model.seq_length = 8192
    cfg.train.global_batch_size = 16 * 8
    cfg.train.micro_batch_size = 1
    cfg.model.recompute_granularity = "full"
    cfg.model.cuda_graph_impl = "local"
    slim(cfg)
    tune_elsewhere(cfg)
    if torch.cuda.is_available():
        cfg.model.seq_length = 1
    return cfg
"""
NEMO = """
import nemo_run as run

def trainer(tensor_parallelism: int = 4, num_nodes: int = 4, num_gpus_per_node: int = 8):
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=tensor_parallelism,
        ddp=run.Config(DDP, grad_reduce_in_fp32=True))
    return run.Config(nl.Trainer, devices=num_gpus_per_node, num_nodes=num_nodes,
        plugins=bf16_with_fp8_mixed(), strategy=strategy)

def pretrain_recipe(num_nodes: int = 2, performance_mode: bool = False):
    recipe = run.Partial(fn, model=run.Config(LlamaModel, config=run.Config(Llama31Config405B)),
        trainer=trainer(num_nodes=num_nodes),
        data=run.Config(Mock, seq_length=2048, global_batch_size=64, micro_batch_size=2))
    if performance_mode:
        recipe.data.global_batch_size = 1
    return recipe

def finetune_recipe(peft_scheme="lora"):
    recipe = pretrain_recipe(num_nodes=8)
    if peft_scheme.lower() in ["lora", "dora"]:
        recipe.peft = run.Config(KNOWN[peft_scheme.lower()])
        recipe.trainer.strategy.tensor_model_parallel_size = 8
    return recipe
"""
TABLE = """
BASE = WorkloadBaseConfig(num_gpus=64, global_batch_size=128)
LLAMA3_70B_PRETRAIN_CONFIG_GB200_NVFP4_V1 = replace(BASE, pipeline_model_parallel_size=4)
"""


def test_functions_of_modules_beside_the_recipe_are_followed_and_what_is_open_named(
    imported: Importing,
) -> None:
    Path("megatron/bridge/recipes").mkdir(parents=True)
    Path("megatron/bridge/recipes/common.py").write_text(COMMON)
    draft = imported("llama3.py", BRIDGE)
    assert_facts(draft, "tp=2 cp=2 pp=4 dp=4 layers=80 sequence=8192 dtype=mxfp8")
    assert_facts(draft, "global_sequences=128 micro_sequences=1 virtual_stages=5")
    assert_facts(draft, "data_parallel=zero1 gradient_dtype=bf16 recompute=full")
    notes = draft.notes
    assert "64 GPUs, as the recipe's name says" in notes
    assert "not represented: model.cuda_graph_impl (line 16)" in notes
    assert "not represented: what tune_elsewhere does (llama3.py, line 18)" in notes
    assert any("a condition that only running tells (llama3.py, line 19)" in note for note in notes)


def test_a_recipe_without_its_modules_says_what_is_not_known(imported: Importing) -> None:
    draft = imported("llama3.py", BRIDGE)
    assert_facts(draft, "dtype=mxfp8 dp=4")
    assert "not represented: what slim does (llama3.py, line 17)" in draft.notes


@pytest.mark.parametrize(
    ("name", "text", "recipe", "facts"),
    [
        ("r.py", NEMO, "pretrain_recipe", "tp=4 dp=4 layers=126 dtype=fp8 sequence=2048"),
        ("r.py", NEMO, "pretrain_recipe", "global_sequences=64 micro_sequences=2"),
        ("r.py", NEMO, "finetune_recipe", "trained=lora tp=8"),
        ("table.py", TABLE, "LLAMA3_70B_PRETRAIN_CONFIG_GB200_NVFP4_V1", "pp=4 dp=16 dtype=nvfp4"),
    ],
)
def test_defaults_arguments_and_tables_of_recipes_are_followed(
    imported: Importing, name: str, text: str, recipe: str, facts: str
) -> None:
    assert_facts(imported(name, text, recipe=recipe), facts)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("trainer=t(num_nodes=1, devices=8, strategy=s(tensor_model_parallel_size=os.n()))",
         "trainer.strategy.tensor_model_parallel_size: is computed, and nothing is run"),
        ("num_gpus=8, model=m('Qwen/Qwen2-7B')", "the shape of Qwen/Qwen2-7B is not known"),
        ("num_gpus=8, mixed_precision=pick()", "the precision cannot be read"),
        ("num_gpus=8, peft=run.Config(DoRA)", "DoRA has no key in a job file"),
        ("num_gpus=8, micro_batch_size='2'", "must be a whole number above 0, is '2'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(refused: Refusing, body: str, said: str) -> None:
    text = f"import nemo\ndef llama3_8b():\n    return C({body})\n"
    assert said in "\n".join(refused("x.py", text))


def test_what_is_computed_and_given_by_hand_is_named(imported: Importing) -> None:
    text = "import nemo\ndef llama3_8b():\n    return C(num_gpus=8, plugins=pick(), a=os.n())\n"
    draft = imported("x.py", text, keys={"model.dtype": "bf16"})
    assert "not represented: plugins (line 3): it is computed" in draft.notes


@pytest.mark.parametrize(
    "body", ["def f():\n    return f()\n", "a = C(b)\nb = a\ndef f():\n    return C(x=a)\n"]
)
def test_endless_recipes_are_refused(refused: Refusing, body: str) -> None:
    assert refused("x.py", f"import nemo\n{body}") == ["x.py: is nested too deep"]
