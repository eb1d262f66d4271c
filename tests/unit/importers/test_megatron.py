"""Megatron-LM arguments as jobs."""

from typing import Any

import pytest

from importers.jobs.draft import FORMATS
from importers.jobs.scripts.options import limit_seconds
from placement.workload.flops import parameter_count
from placement.workload.parallelism import Parallelism
from placement.workload.training import Batch, DataParallel, Training
from scheduler.core.model.job_array import JobArray
from scheduler.files.yaml12 import parse
from tests.build import DEEPSEEK_V3, GPT3
from tests.unit.importers.conftest import Importing, Refusing, assert_facts

GPT3_LINE = """
--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048
--vocab-size 50257 --micro-batch-size 1 --global-batch-size 1536 --bf16
--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --sequence-parallel
"""
DEEPSEEK_LINE = """
--pipeline-model-parallel-size 16 --expert-model-parallel-size 64 --bf16 --swiglu
--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128
--seq-length 4096 --vocab-size 129280 --untie-embeddings-and-output-weights
--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --v-head-dim 128
--num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048
--moe-shared-expert-intermediate-size 2048 --moe-layer-freq "([0]*3+[1]*58)"
--moe-router-num-groups 8 --moe-router-group-topk 4
--micro-batch-size 1 --global-batch-size 15360
--attention-dropout 0.0 --hidden-dropout 0 --use-distributed-optimizer
"""
SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8
NODES=${SLURM_NNODES:-16}
LAUNCH=(--nproc_per_node $GPUS --nnodes $NODES --master_addr $ADDR)
MODEL_ARGS=(
    --num-layers $LAYERS     # of the 70B
    --hidden-size 8192
    --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
)
TRAIN="--micro-batch-size 1 \\
       --global-batch-size 256 --bf16 --fp8-format hybrid"
torchrun ${LAUNCH[@]} pretrain_gpt.py "${MODEL_ARGS[@]}" $TRAIN \\
    --seq-length 8192 --vocab-size 128256 --swiglu \\
    --tensor-model-parallel-size $GPUS --sequence-parallel 2>&1 | tee log
"""


def test_gpt_3_with_megatrons_defaults(imported: Importing) -> None:
    """No swiglu: two matrices of 4 h; tied embeddings; a vocabulary padded to 128 x tp."""
    request = imported("gpt.sh", GPT3_LINE, gpus=1024).checked().request
    assert request.model == GPT3
    assert parameter_count(request.model) == parameter_count(GPT3)
    assert request.parallelism == Parallelism(tp=8, pp=16, dp=8, order="tp-cp-ep-dp-pp")
    assert request.batch == Batch(1_536)
    assert request.training == Training(data_parallel=DataParallel.DDP, dropout=True)


def test_deepseek_v3(imported: Importing) -> None:
    draft = imported("moe.sh", DEEPSEEK_LINE, gpus=2048)
    request = draft.checked().request
    assert request.model == DEEPSEEK_V3
    assert request.parallelism == Parallelism(ep=64, pp=16, dp=2, order="tp-cp-ep-dp-pp")
    assert request.training == Training(data_parallel=DataParallel.ZERO1, expert_hosts_per_token=4)
    assert any("experts of one host" in note for note in draft.notes)


def test_a_script_is_read_and_not_run(imported: Importing) -> None:
    draft = imported("run.sh", SCRIPT, environment={"LAYERS": "80"})
    assert_facts(draft, "layers=80 kv_heads=8 gated=True dtype=fp8 tp=8 dp=16 global_sequences=256")
    assert draft.notes == []


def test_options_that_no_job_file_has_are_named(imported: Importing) -> None:
    more = "--optimizer muon --optimizer-cpu-offload --window-size 4096,0 --load /ckpt"
    notes = imported("gpt.sh", f"{GPT3_LINE} {more}", gpus=1024).notes
    for option in ("--optimizer ", "--optimizer-cpu-offload", "--window-size"):
        assert any(option in note for note in notes), option
    assert not any("--load" in note for note in notes)


def test_branches_are_all_read_and_it_is_said(imported: Importing) -> None:
    text = f"A=1\nif [ $X ]; then\n  A=4\nfi\nrun {GPT3_LINE} --num-query-groups $A"
    draft = imported("gpt.sh", text.replace("\n--", " --") + " --group-query-attention", gpus=1024)
    assert_facts(draft, "kv_heads=4")
    assert any("all their branches were read" in note for note in draft.notes)


def test_a_variable_that_has_no_value_is_asked_for(refused: Refusing) -> None:
    assert refused("run.sh", SCRIPT) == [
        "run.sh:7: --num-layers: must be a whole number, not '$LAYERS';"
        " --env LAYERS=... gives its value"
    ]


def test_what_is_written_reads_back_as_the_job(imported: Importing) -> None:
    draft = imported("moe.sh", DEEPSEEK_LINE, gpus=2048, keys={"priority": 7})
    assert parse(draft.text()).value == draft.mapping
    assert draft.mapping["priority"] == 7
    assert draft.mapping["name"] == "moe"
    assert draft.text().startswith("# Imported from moe.sh: Megatron-LM arguments.\n")


SHARDED, FSDP = "--use-distributed-optimizer", "--data-parallel-sharding-strategy"


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (SHARDED, "data_parallel=zero1"),
        (f"{SHARDED} --num-distributed-optimizer-instances 4", "data_parallel=zero1 shard_group=2"),
        ("--use-torch-fsdp2", "data_parallel=zero3 sync=micro_batch"),
        (f"--use-megatron-fsdp {FSDP} optim_grads", "data_parallel=zero2 sync=micro_batch"),
        (f"--use-custom-fsdp {FSDP}=optim", "data_parallel=zero1"),
        ("--grad-reduce-in-bf16", "gradient_dtype=bf16"),
        ("--recompute-activations", "recompute=selective"),
        ("--recompute-granularity full", "recompute=full"),
        ("--transformer-impl local", "recompute=none"),
        ("--transformer-impl local --use-flash-attn", "recompute=selective"),
        ("--hidden-dropout 0 --attention-dropout 0.00", "dropout=False"),
        ("--hidden-dropout 0", "dropout=True"),
        ("--context-parallel-size 2", "context_parallel=ring"),
        ("--context-parallel-size 2 --cp-comm-type a2a", "context_parallel=ulysses"),
        ("--context-parallel-size 2 --cp-comm-type all_gather", "context_parallel=allgather"),
        ("--bf16 --fp8-format hybrid", "dtype=fp8"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "dtype=mxfp8"),
        ("--bf16 --fp8-format e4m3 --fp4-format e2m1", "dtype=nvfp4"),
        ("--bf16 --compute_dtype fp8_mx", "dtype=mxfp8"),
        ("--pad-vocab-size-to 51300", "vocab=51300"),
        ("", "global_sequences=1536 virtual_stages=1 sequence_parallel=True"),
        ("--num-layers-per-virtual-pipeline-stage 2", "global_sequences=1536 virtual_stages=3"),
        ("--num-virtual-stages-per-pipeline-rank 6", "global_sequences=1536 virtual_stages=6"),
        ("--use-tp-pp-dp-mapping", "order=tp-cp-ep-pp-dp"),
    ],
)
def test_what_options_mean(imported: Importing, more: str, facts: str) -> None:
    assert_facts(imported("gpt.sh", GPT3_LINE + more, gpus=1024), facts)


def test_what_other_options_mean(imported: Importing) -> None:
    text = GPT3_LINE.replace("--vocab-size 50257", "--vocab-file data/gpt2-vocab.json")
    draft = imported("gpt.sh", text.replace("--sequence-parallel", ""), gpus=1024)
    assert_facts(draft, "vocab=51200 sequence_parallel=False")


@pytest.mark.parametrize(
    ("frequency", "dense"),
    [("1", 0), ("2", 30), ("([0]*1+[1]*60)", 1), ("[0,1]*30+[1]", 30), ("([1]*61)", 0)],
)
def test_layers_without_experts(imported: Importing, frequency: str, dense: int) -> None:
    text = DEEPSEEK_LINE.replace("([0]*3+[1]*58)", frequency)
    assert_facts(imported("moe.sh", text, gpus=2048), f"dense_layers={dense}")


@pytest.mark.parametrize("frequency", ["([0]*3+[1]*3)", "__import__('os')", "[2]*61", "0", "[0"])
def test_patterns_are_not_evaluated(refused: Refusing, frequency: str) -> None:
    text = DEEPSEEK_LINE.replace('"([0]*3+[1]*58)"', f'"{frequency}"')
    [line] = refused("moe.sh", text, gpus=2048)
    assert line.startswith("moe.sh:7: --moe-layer-freq: ")


@pytest.mark.parametrize(
    ("tp", "ep", "etp", "axes"),
    [
        (8, 64, 1, (8, 8, 16)),  # experts whole, over tp and 8 of dp
        (8, 8, 1, (8, 1, 128)),  # within tp
        (8, 8, 8, (8, 8, 16)),  # experts cut over tp
        (1, 64, 1, (1, 64, 16)),
    ],
)
def test_experts_over_the_ranks_of_other_axes(
    imported: Importing, tp: int, ep: int, etp: int, axes: tuple[int, int, int]
) -> None:
    text = DEEPSEEK_LINE.replace("--pipeline-model-parallel-size 16", "").replace(
        "--expert-model-parallel-size 64",
        f"--tensor-model-parallel-size {tp} --expert-model-parallel-size {ep}"
        f" --expert-tensor-parallel-size {etp}",
    )
    expert_tp = 1 if etp == 1 < tp else 0
    facts = "tp={} ep={} dp={}".format(*axes)
    assert_facts(imported("moe.sh", text, gpus=1024), f"{facts} expert_tp={expert_tp}")


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (("--num-layers 96", ""), "gpt.sh: --num-layers: is missing"),
        (("--num-layers 96", "--num-layers"), "gpt.sh:2: --num-layers: must be a whole number"),
        (("96 --seq", "many --seq"), "gpt.sh:2: --num-attention-heads: must be a whole number"),
        (("--vocab-size 50257", ""), "gpt.sh: --vocab-size: is missing (the tokenizer knows"),
        (("size 16 ", "size 7 "), "gpt.sh:4: --tensor-model-parallel-size: tp 8 x cp 1 x pp 7"),
        (("1536", "1537"), "gpt.sh:3: --global-batch-size: batch.global_sequences: 1537"),
        (("parallel-size 8", "parallel-size 0"), "gpt.sh: parallelism.tp: must be at least 1"),
        (
            ("--bf16", "--make-vocab-size-divisible-by 0"),
            "gpt.sh:3: --make-vocab-size-divisible-by: ",
        ),
        (("-heads 96", "-heads 97"), "gpt.sh:2: --num-attention-heads: model.heads: 97 does not"),
    ],
)
def test_faults_name_the_option_and_its_line(
    refused: Refusing, edit: tuple[str, str], line: str
) -> None:
    [found] = refused("gpt.sh", GPT3_LINE.replace(*edit), gpus=1024)
    assert found.startswith(line)


def test_all_faults_are_told_at_once_and_what_is_no_megatron(refused: Refusing) -> None:
    assert len(refused("gpt.sh", "--num-layers x --seq-length y", gpus=8)) == 6
    assert refused("gpt.sh", "echo hello", gpus=8) == [
        f"gpt.sh: has no Megatron-LM options, such as --num-layers 32: {FORMATS}"
    ]


def test_keys_given_by_hand_win(imported: Importing) -> None:
    keys = {"model.vocab": 32_000, "parallelism.order": "tp-pp-dp", "name": "mine"}
    draft = imported("gpt.sh", GPT3_LINE, gpus=1024, keys=keys)
    assert_facts(draft, "vocab=32000 order=tp-pp-dp")
    assert draft.checked().name == "mine"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"model.layerz": 3}, "gpt.sh: --set: model.layerz: unknown key"),
        ({"parallelism.dp": "foo"}, "gpt.sh: --set: parallelism.dp: must be a whole number"),
        ({"colour": "red"}, "gpt.sh: --set: colour: unknown key"),
        (None, "gpt.sh: --model: the options describe the model"),
    ],
)
def test_keys_that_no_job_file_has(refused: Refusing, keys: Any, line: str) -> None:
    more = {"keys": keys} if keys else {"model": {"model.vocab": 9}}
    [found] = refused("gpt.sh", GPT3_LINE, gpus=1024, **more)
    assert found.startswith(line)


SBATCH = """#!/bin/bash
#SBATCH --job-name="llama 70b"
#SBATCH -N 16
#SBATCH --gres=gpu:h100:8
#SBATCH --time=2-12:00:00
#SBATCH -a 0-6:2%2
run_cmd="python pretrain_gpt.py {line} --main-grads-dtype bf16 --exp-avg-dtype bf16"
echo $run_cmd
eval srun -N $SLURM_NNODES $run_cmd
"""


def test_a_batch_script_says_how_many_gpus_run_and_for_how_long(imported: Importing) -> None:
    text = SBATCH.format(line=" ".join(GPT3_LINE.split()).replace("size 16 ", "size 8 "))
    draft = imported("run.sbatch", text)
    spec = draft.checked()
    assert spec.name == "llama-70b"
    assert spec.time_limit_s == 60 * 3600
    assert spec.array == JobArray("0-6:2", 2)
    assert_facts(draft, "world_size=128 gradient_dtype=bf16")
    assert [note for note in draft.notes if "-dtype" in note] == [
        "not represented: --exp-avg-dtype (line 7)"
    ]


def test_options_that_decide_nothing_beside_others_are_not_left_to_the_program(
    imported: Importing,
) -> None:
    fused = "--use-flash-attn --recompute-activations --transformer-impl local"
    line = f"{GPT3_LINE} {fused} --attention-dropout 0.1 --accumulate-allreduce-grads-in-fp32"
    draft = imported("run.sh", f"srun start.sh {' '.join(line.split())} --lr 1", gpus=1024)
    assert draft.notes[-1] == "left to the program: --lr"


def test_time_limits_are_read_as_sbatch_does() -> None:
    for text, seconds in {
        "90": 5_400,
        "90:30": 5_430,
        "1:00:00": 3_600,
        "1-2": 26 * 3_600,
        "1-0:30": 86_400 + 1_800,
        "2-12:00:05": 216_005,
        "UNLIMITED": 0,
    }.items():
        assert limit_seconds(text) == seconds
