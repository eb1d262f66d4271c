"""Launch scripts of any program: their words, `run`, what Slurm is asked for, and other keys."""

import os

import pytest

from importers.jobs.scripts.shell import read_script
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.files.errors import InputError
from tests.unit.importers.conftest import Importing, Refusing, assert_facts

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
    assert (run.command[-1], run.workdir) == ("7", os.getcwd())


def test_what_slurm_is_asked_for_is_kept_or_named(imported: Importing) -> None:
    text = f"""#SBATCH -N 32 --gpus-per-node=4 --segment=16 --switches=2@10 --no-requeue
#SBATCH --begin=2026-12-01T06:00 --exclude=n[1-2] --account=nlp -p h100 --signal=B:USR1@300
#SBATCH --container-image=nvcr.io#nvidia/nemo:25.11
srun python t.py {MODEL} --tensor-model-parallel-size 4"""
    draft = imported("run.sh", text)
    spec = draft.checked()
    where = spec.request.where
    assert (where.segment, where.max_zones, spec.requeue.value) == (16, 2, "never")
    assert spec.begin_ns
    named = " ".join(draft.notes)
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
    assert run.container == container
    assert note in " ".join(draft.notes)
    assert bool(note) or draft.notes == []


def test_any_program_of_torchrun_is_taken_with_a_model(imported: Importing) -> None:
    text = "srun torchrun --nnodes 4 --nproc_per_node 8 fsdp.py --batch-size 2 --seq-len 8192"
    draft = imported("train.sbatch", text, model=LLAMA)
    assert_facts(draft, "dp=32 data_parallel=zero3 global_sequences=64 sequence=8192")
    assert imported("train.sbatch", text).checked().run is not None  # without one: the gang alone


def test_ranks_of_mpirun_are_those_of_the_job_and_its_variables_the_program_s(
    imported: Importing,
) -> None:
    text = "mpirun -np 16 -H a:8,b:8 -x NCCL_DEBUG=INFO --bind-to none python t.py --bs 4"
    draft = imported("run.sh", text)
    spec = draft.checked()
    assert (spec.request.parallelism.world_size, dict(spec.run.env)) == (16, {"NCCL_DEBUG": "INFO"})
    assert [note for note in draft.notes if "represented" in note] == [
        "not represented: --bind-to of the wrapper (line 1)"
    ]


def test_what_another_file_or_who_starts_the_script_says_is_named(imported: Importing) -> None:
    text = (
        'python -m torch.distributed.launch --nproc_per_node=8 --node_rank=$R t.py -c a.toml "$@"'
    )
    draft = imported("run.sh", f"{text} --tensor_parallel 2")
    command = ("python", "-m", "torch.distributed.launch", "t.py", "-c", "a.toml")
    assert draft.checked().run.command == (*command, "--tensor_parallel", "2")
    said = " ".join(draft.notes)
    assert "not represented: $@ (line 1)" in said
    assert "not represented: --tensor-parallel (line 1)" in said
    assert "a.toml (line 1) is not read" in said


@pytest.mark.parametrize(
    ("launcher", "file"),
    [
        ("deepspeed --num_gpus 8 t.py --deepspeed ds.json", "ds.json"),
        ("srun accelerate launch --config_file f.yaml t.py", "f.yaml"),
        ("accelerate launch t.py", "its configuration"),
        ("python prepare.py\ndeepspeed t.py --deepspeed_config ds.json", "ds.json"),
    ],
)
def test_a_launcher_that_is_not_read_is_named_with_its_file(
    refused: Refusing, launcher: str, file: str
) -> None:
    (line,) = refused("run.sh", f"set -e\n{launcher}", model=LLAMA)
    program = "deepspeed" if "deepspeed" in launcher else "accelerate"
    number = len(f"set -e\n{launcher}".splitlines())
    assert line.startswith(f"run.sh:{number}: {program}: starts ranks in a way that is not read: ")
    assert f"import {file} with --gpus and --model" in line


def test_names_of_launchers_and_options_elsewhere_are_words(imported: Importing) -> None:
    text = "pip install deepspeed accelerate\ntar -x -m\n"
    text += "torchrun --nproc-per-node 8 t.py \\\n deepspeed"
    command = imported("run.sh", text).checked().run.command
    assert command == ("torchrun", "t.py", "deepspeed")


def test_degrees_given_by_hand_leave_as_many_ranks(imported: Importing, refused: Refusing) -> None:
    text = "torchrun --nproc-per-node 8 --nnodes 4 t.py --batch-size 2 --seq-len 8192"
    keys = {"parallelism.tp": 4}
    draft = imported("run.sh", text, model=LLAMA, keys=keys)
    assert_facts(draft, "tp=4 dp=8 global_sequences=16")
    assert "run.command is as the script has it: change parallelism.tp there as well" in draft.notes
    draft = imported("run.sh", f"{text} {MODEL}", keys=keys)
    assert_facts(draft, "tp=4 dp=8")
    assert imported("run.sh", text, keys=keys | {"parallelism.dp": 2}).checked()
    assert "do not divide 32 GPUs" in refused("run.sh", text, keys={"parallelism.tp": 5})[0]
    contradicted = refused("run.sh", text, gpus=16, keys=keys | {"parallelism.dp": 2})
    assert contradicted == ["run.sh: --set: the axes make 8 ranks, not the 16 of --gpus"]


def test_a_command_in_a_string_for_a_shell_is_read(imported: Importing) -> None:
    text = f"""#SBATCH --nodes=4 --gpus-per-node=8 --signal=USR2@600
N=`scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l`
srun --cpu-bind=none bash -lc "cd /llm && RANK=\\$SLURM_PROCID DEBUG=1 torchrun --nnodes $N:$N \\
 --nproc-per-node 8 --max-restarts 0 --tee 3 --node_rank \\$SLURM_PROCID t.py {MODEL} --a 'b c'"
"""
    draft = imported("run.sh", text)
    spec = draft.checked()
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
    assert_facts(draft, "layers=12")
    assert "all layers are counted as attention" in draft.notes[0]


@pytest.mark.parametrize("option", ["--swiglu", "--quick-geglu"])
def test_gated_activations_have_three_matrices(imported: Importing, option: str) -> None:
    text = f'N=${{X:-"2"}}; torchrun --nproc-per-node 8 --nnodes $N p.py {MODEL} {option}'
    assert_facts(imported("g.sh", text), "gated=True dp=16")


# --- the words of a script, without running any --------------------------------------


def words(text: str, **environment: str) -> list[str]:
    return [word.text for word in read_script(text, "run.sh", environment).commands]


def test_words() -> None:
    for text, found in {
        "run --a 1": ["run", "--a", "1"],
        "run --a \\\n  1  # two\n#three": ["run", "--a", "1"],
        "A=1\nrun $A ${A} \"$A\" '$B'x": ["run", "1", "1", "1", "$Bx"],
        "A='--b 2  --c'\nrun $A 3": ["run", "--b", "2", "--c", "3"],
        "A=(--b 2 # why\n --c)\nrun ${A[@]}": ["run", "--b", "2", "--c"],
        'A="--b \\\n 2"\nrun $A': ["run", "--b", "2"],
        "A=1; A+=2; run $A": ["run", "1", "2"],
        "A=(1)\nA+=(2 3)\nrun ${A[*]}": ["run", "1", "2", "3"],
        "export A=8 && run pre$A.$A": ["run", "pre8.8"],
        "run $1\nshift 2\nrun ${1} $10": ["run", "$1", "shift", "2", "run", "${3}", "${3}0"],
        ': "${N:=4}" "${N:=5}"\nrun $N': [":", "4", "4", "run", "4"],
        "if [ 9 -le 8 ]; then A=1; elif [ 9 -ge 9 ]; then A=2; fi\nrun $A": ["run", "2"],
        "run ${N:-4} ${M-5} ${A:=6}": ["run", "4", "5", "6"],
        "N=4\nrun $(( N * 8 )) $(($N*2+1)) $((N/3))": ["run", "32", "9", "1"],
        "N=2\nM=$((N*4))\nrun $M": ["run", "8"],
        "if x; then A=7; fi\nrun $A": ["run", "7"],
        "run $UNSET $(date) `ls`": ["run", "$UNSET", "$(date)", "$(...)"],
        "A=\nrun $A end": ["run", "end"],
        "P=$P:/more\nrun $P": ["run", "$P:/more"],
        "A='x y'\nrun a$A-b": ["run", "ax", "y-b"],
        "B=2\nrun ${A:-$B}": ["run", "2"],
        'run "two words"': ["run", "two", "words"],
    }.items():
        assert words(text) == found


SIZES = """
if [ $SIZE = 8B ]; then
  LAYERS=32
elif [[ "$SIZE" == "70B" ]]
then
  LAYERS=80; if [ -z ${VP} ]; then MORE=""; else MORE="--vp ${VP}"; fi
else
  LAYERS=1
fi
run $LAYERS $MORE
"""


@pytest.mark.parametrize(
    ("environment", "commands"),
    [
        ({"SIZE": "8B"}, ["run", "32", "$MORE"]),
        ({"SIZE": "70B", "VP": ""}, ["run", "80"]),
        ({"SIZE": "70B", "VP": "5"}, ["run", "80", "--vp", "5"]),
        ({"SIZE": "9B"}, ["run", "1", "$MORE"]),
        ({}, ["run", "1", "--vp", "${VP}"]),  # not known: all branches, the last one counts
    ],
)
def test_the_branch_that_holds_is_read(environment: dict[str, str], commands: list[str]) -> None:
    assert words(SIZES, **environment) == commands
    script = read_script(SIZES, "run.sh", environment)
    assert script.is_certain is bool(environment)


def test_what_does_not_follow_has_both_branches() -> None:
    for test, holds in {
        "[ 1 -eq 1 ]": True,
        "[ ! a != b ]": False,
        "[ -n $A ]": None,
        "[[ a == a && b == c ]]": None,
        "[[ a == a* ]]": None,
        "which nvcc": None,
    }.items():
        got = words(f"if {test}; then run yes; else run no; fi")
        yes, no = ["run", "yes"], ["run", "no"]
        assert got == {True: yes, False: no, None: yes + no}[holds], test


def test_the_environment_wins_and_words_keep_the_line_they_were_written_in() -> None:
    assert words("N=${N:-1}\nM=2\nrun $N $M", N="9") == ["run", "9", "2"]
    text = "A=(\n  --b 2\n  --c\n)\nB='--d\n  --e'\nrun ${A[@]} \\\n  $B --f\n"
    found = {word.text: word.line for word in read_script(text, "run.sh", {}).commands}
    assert found == {"run": 7, "--b": 2, "2": 2, "--c": 3, "--d": 5, "--e": 6, "--f": 8}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a\nrun 'open", 2, "' is never closed"),
        ("A=(1\n2", 1, "( is never closed"),
        ("run ${A", 1, "{ is never closed"),
        ("A='x x'\n" + 'A="$A $A"\n' * 40 + "run $A", None, "expand to too much text"),
        ("A='x x'\n" + 'A="$A$A"\n' * 40 + "run $A", None, "expand to too much text"),
    ],
)
def test_what_has_no_end_is_refused(text: str, line: int | None, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_script(text, "run.sh", {})
    [problem] = caught.value.found
    assert says in problem.message
    assert line in (None, problem.line)


@pytest.mark.parametrize("expression", ["1/0", "9**9**9", "a.b", "1 if 2 else 3", "2<<99", ""])
def test_arithmetic_that_is_not_plain_stays_as_it_is(expression: str) -> None:
    assert words(f"run $(({expression}))") == ["run", f"$(({expression}))"][:2]
