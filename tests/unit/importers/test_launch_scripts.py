"""Launch scripts of any program: `run`, what Slurm is asked for, and what has no key."""

import os

import pytest

from scheduler.core.policies.job_terms import ContainerSpec
from tests.unit.importers.conftest import Importing, Refusing

MODEL = """--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512
 --micro-batch-size 1 --global-batch-size 256 --vocab-size 32000""".replace("\n", " \\\n")
LLAMA = {
    **{"model.layers": 32, "model.hidden": 4096, "model.ffn": 14336, "model.heads": 32},
    **{"model.kv_heads": 8, "model.vocab": 128256},
}


def test_a_script_is_run_as_torchrun_runs_it_but_for_who_is_who(imported: Importing) -> None:
    text = f"""#!/bin/bash
#SBATCH -N 2 --gpus-per-node=2
export NCCL_DEBUG=INFO MASTER_PORT=29500
source /opt/venv/bin/activate
cd /scratch/llm
srun torchrun --nproc-per-node 2 --nnodes 2 --node_rank $SLURM_NODEID --rdzv_id=$RANDOM \\
 --tee 3 pretrain_gpt.py {MODEL} --data 'a b' --save /ckpt 2>&1 | tee log
"""
    draft = imported("run.sh", text)
    run = draft.checked().run
    assert run is not None
    assert run.command[:4] == ("torchrun", "--tee", "3", "pretrain_gpt.py")
    assert run.command[-4:] == ("--data", "a b", "--save", "/ckpt")
    assert (run.per_host, run.workdir) == (1, "/scratch/llm")
    assert dict(run.env) == {
        "NCCL_DEBUG": "INFO",
        "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
    }
    assert draft.notes == []


def test_what_a_run_alone_can_tell_is_said_and_not_guessed(imported: Importing) -> None:
    text = f"torchrun --nproc-per-node 8 train.py {MODEL} --seed $SEED"
    draft = imported("run.sh", text)
    assert draft.checked().run is None
    assert draft.notes[0].startswith("no run: $SEED (line 2) is known to a run of the script alone")
    run = imported("run.sh", text, environment={"SEED": "7"}).checked().run
    assert run is not None
    assert (run.command[-1], run.workdir) == ("7", os.getcwd())


def test_what_slurm_is_asked_for_is_kept_or_named(imported: Importing) -> None:
    asked = """-J tas -N 32|--gpus-per-node=4|--segment=16|--switches=2@10|--no-requeue
        --dependency=singleton|--begin=2026-12-01T06:00|--exclude=n[1-2]|--account=nlp
        --container-image=nvcr.io#nvidia/nemo:25.11|--signal=B:USR1@300|-p h100|-d afterok:123"""
    options = [part.strip() for row in asked.split("\n") for part in row.split("|")]
    options[:1] = ["-J tas", "-N 32"]
    lines = "\n".join(f"#SBATCH {option}" for option in options)
    draft = imported("run.sh", f"{lines}\nsrun python t.py {MODEL} --tensor-model-parallel-size 4")
    spec = draft.checked()
    where = spec.request.where
    assert (where.segment, where.max_zones, spec.requeue.value) == (16, 2, "never")
    assert spec.begin_ns
    named = " ".join(draft.notes)
    assert spec.run is not None
    assert spec.run.warn_s == 300
    for option in ("--exclude=n[1-2]", "--account=nlp", "--partition=h100"):
        assert f"not represented: #SBATCH {option}" in named
    assert spec.run.container == ContainerSpec("nvcr.io/nvidia/nemo:25.11")


@pytest.mark.parametrize(
    ("wrapper", "container", "note"),
    [
        (
            "srun --container-image nvcr.io#nvidia/nemo:25 --container-mounts=/a:/b:ro+rprivate,/c",
            ContainerSpec("nvcr.io/nvidia/nemo:25", ("/a:/b:ro", "/c:/c")),
            "",
        ),
        (
            "srun apptainer exec --nv -B /a:/a:rw images/t.sif",
            ContainerSpec("/w/images/t.sif", ("/a:/a",)),
            "",
        ),
        ("singularity exec docker://t:1", ContainerSpec("docker://t:1"), ""),
        ("srun --container-image=$IMG --mpi=pmix", None, "the container $IMG"),
        ("srun --container-image=t --mpi=pmix", ContainerSpec("t"), "--mpi=pmix of the wrapper"),
        ("apptainer exec -B $PWD:/w t.sif", ContainerSpec("/w/t.sif"), "the mount $PWD:/w"),
    ],
)
def test_the_container_of_a_wrapper_is_kept_or_named(
    imported: Importing, wrapper: str, container: ContainerSpec | None, note: str
) -> None:
    draft = imported("run.sh", f"cd /w\n{wrapper} torchrun --nproc-per-node 8 t.py {MODEL}")
    run = draft.checked().run
    assert run is not None
    assert run.container == container
    assert note in " ".join(draft.notes)
    assert bool(note) or draft.notes == []


def test_any_program_of_torchrun_is_taken_with_a_model(imported: Importing) -> None:
    text = "srun torchrun --nnodes 4 --nproc_per_node 8 fsdp.py --batch-size 2 --seq-len 8192"
    draft = imported("train.sbatch", text, model=LLAMA)
    request = draft.checked().request
    assert (request.parallelism.dp, request.training.data_parallel.value) == (32, "zero3")
    assert request.batch is not None
    assert request.model is not None
    assert (request.batch.global_sequences, request.model.sequence) == (64, 8192)
    assert imported("train.sbatch", text).checked().run is not None  # without one: the gang alone


def test_a_command_in_a_string_for_a_shell_is_read(imported: Importing) -> None:
    text = f"""#SBATCH --nodes=4 --gpus-per-node=8 --signal=USR2@600
N=`scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l`
srun --cpu-bind=none bash -lc "cd /llm && RANK=\\$SLURM_PROCID DEBUG=1 torchrun --nnodes $N:$N \\
 --nproc-per-node 8 --max-restarts 0 --tee 3 --node_rank \\$SLURM_PROCID t.py {MODEL} --a 'b c'"
"""
    draft = imported("run.sh", text)
    spec = draft.checked()
    assert spec.run is not None
    assert spec.run.command[:6] == ("torchrun", "--max-restarts", "0", "--tee", "3", "t.py")
    assert spec.run.command[-2:] == ("--a", "b c")
    assert (dict(spec.run.env), spec.run.workdir, spec.run.warn_s) == ({"DEBUG": "1"}, "/llm", 600)
    assert spec.request.parallelism.world_size == 32


def test_a_signal_is_a_note_where_nothing_is_run(imported: Importing) -> None:
    draft = imported("run.sh", f"#SBATCH --signal=USR2@600\nexec $LAUNCHER {MODEL}", gpus=8)
    assert draft.checked().run is None
    assert "not represented: #SBATCH --signal=USR2@600 (line 1)" in draft.notes
    layers = "torchrun --nproc-per-node 8 t.py --num_layers=32 --num_heads=32"
    assert imported("run.sh", layers).tool == "a launch script"  # layers alone make no Megatron


def test_how_many_gpus_run_is_asked_for_once(refused: Refusing) -> None:
    assert refused("run.sh", f"python t.py {MODEL} --tensor-model-parallel-size 8") == [
        "run.sh: --gpus: is needed: the file does not say how many GPUs run"
    ]
    text = f"torchrun --nnodes $(grep -c . hosts) --nproc-per-node 8 t.py {MODEL}"
    assert "; --gpus says how many GPUs run" in refused("run.sh", text)[0]


def test_a_hybrid_is_refused_unless_its_layers_are_given(
    imported: Importing, refused: Refusing
) -> None:
    text = f'torchrun --nproc-per-node 8 m.py {MODEL} --hybrid-override-pattern "M-M*-"'
    (line,) = refused("m.sh", text)
    assert "a hybrid of attention and Mamba layers is not represented" in line
    text = text.replace("--num-layers 4", "")
    draft = imported("m.sh", text, keys={"model.layers": 12})
    assert draft.checked().request.model.layers == 12
    assert "all layers are counted as attention" in draft.notes[0]


@pytest.mark.parametrize("option", ["--swiglu", "--quick-geglu"])
def test_gated_activations_have_three_matrices(imported: Importing, option: str) -> None:
    text = f'N=${{X:-"2"}}; torchrun --nproc-per-node 8 --nnodes $N p.py {MODEL} {option}'
    request = imported("g.sh", text).checked().request
    assert (request.model.gated, request.parallelism.dp) == (True, 16)
