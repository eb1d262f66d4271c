"""Recipes of NeMo 2 and of Megatron-Bridge, which are read and not run."""

from pathlib import Path

import pytest

from tests.unit.importers.conftest import Importing, Refusing

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
    request, notes = draft.checked().request, draft.notes
    axes, model, batch = request.parallelism, request.model, request.batch
    assert (axes.tp, axes.cp, axes.pp, axes.dp) == (2, 2, 4, 4)
    assert model is not None
    assert batch is not None
    assert (model.layers, model.sequence, model.dtype) == (80, 8192, "mxfp8")
    assert (batch.global_sequences, batch.micro_sequences, batch.virtual_stages) == (128, 1, 5)
    training = request.training
    assert (training.data_parallel.value, training.gradient_dtype) == ("zero1", "bf16")
    assert training.recompute.value == "full"
    assert "64 GPUs, as the recipe's name says" in notes
    assert "not represented: model.cuda_graph_impl (line 16)" in notes
    assert "not represented: what tune_elsewhere does (llama3.py, line 18)" in notes
    assert any("a condition that only running tells (llama3.py, line 19)" in note for note in notes)


def test_a_recipe_without_its_modules_says_what_is_not_known(imported: Importing) -> None:
    draft = imported("llama3.py", BRIDGE)
    request = draft.checked().request
    assert request.model is not None
    assert (request.model.dtype, request.parallelism.dp) == ("mxfp8", 4)
    assert "not represented: what slim does (llama3.py, line 17)" in draft.notes


def test_defaults_and_arguments_of_nemo_are_followed(imported: Importing) -> None:
    request = imported("r.py", NEMO, recipe="pretrain_recipe").checked().request
    axes, model, batch = request.parallelism, request.model, request.batch
    assert model is not None
    assert batch is not None
    assert (axes.tp, axes.dp, model.layers, model.dtype) == (4, 4, 126, "fp8")
    assert (model.sequence, batch.global_sequences, batch.micro_sequences) == (2048, 64, 2)
    tuned = imported("r.py", NEMO, recipe="finetune_recipe").checked().request
    assert (tuned.training.trained.value, tuned.parallelism.tp) == ("lora", 8)


def test_a_table_of_workloads_is_read_by_name(imported: Importing) -> None:
    name = "LLAMA3_70B_PRETRAIN_CONFIG_GB200_NVFP4_V1"
    request = imported("table.py", TABLE, recipe=name).checked().request
    assert request.model is not None
    assert (request.parallelism.pp, request.parallelism.dp) == (4, 16)
    assert request.model.dtype == "nvfp4"


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


def test_endless_recipes_are_refused(refused: Refusing) -> None:
    calls = "import nemo\ndef f():\n    return f()\n"
    assert refused("x.py", calls) == ["x.py: is nested too deep"]
    constants = "import nemo\na = C(b)\nb = a\ndef f():\n    return C(x=a)\n"
    assert refused("x.py", constants) == ["x.py: is nested too deep"]
