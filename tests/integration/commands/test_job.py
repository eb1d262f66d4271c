"""`muster job`: a job by its name, or a job file from another tool's."""

from pathlib import Path

import pytest

from scheduler.files.inputs import load_job
from tests.commands import Muster, Result

ARGUMENTS = """--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024
--vocab-size $VOCAB --micro-batch-size 1 --global-batch-size 16 --bf16
"""


@pytest.fixture
def job(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> Muster:
    """`muster job` in a folder with args.sh; no server answers."""
    Path("args.sh").write_text(ARGUMENTS)
    Path("job.yaml").unlink()
    monkeypatch.setenv("MUSTER_ADDRESS", "127.0.0.1:1")
    return lambda *arguments: muster("job", *arguments)


IMPORT = ("import", "args.sh", "--gpus", "8", "--env", "VOCAB=1000")


def test_a_job_file_goes_out_or_into_a_file_that_is_kept(job: Muster, place: Muster) -> None:
    done = job(*IMPORT)
    assert (done.code, done.err) == (0, "")
    Path("out.yaml").write_text(done.out)
    made = load_job("out.yaml")
    assert (made.name, made.request.parallelism.dp) == ("args", 8)
    to_file = (*IMPORT, "-o", "job.yaml")
    assert job(*to_file, "--set", "priority=3") == Result(0, "", "job.yaml: the job file\n")
    assert load_job("job.yaml").priority == 3
    assert place(fabric="roce-24k").code == 0
    assert job(*to_file) == Result(2, "", "--output: job.yaml exists; --force replaces it\n")
    assert load_job("job.yaml").priority == 3
    assert job(*to_file, "--force").code == 0
    assert load_job("job.yaml").priority == 0


def test_a_model_from_a_job_file(job: Muster) -> None:
    job(*IMPORT, "-o", "job.yaml")
    settings = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}'
    Path("ds.json").write_text(settings)
    options = ("--gpus", "16", "--model", "job.yaml", "-o", "ds.yaml")
    assert job("import", "ds.json", *options) == Result(0, "", "ds.yaml: the job file\n")
    assert load_job("ds.yaml").request.model == load_job("job.yaml").request.model


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("args.sh", "--gpus", "8"), "args.sh:2: --vocab-size: must be a whole number"),
        (("args.sh", "--env", "VOCAB=9"), "args.sh: --gpus: is needed"),
        (("args.sh", "--set", "priority"), "--set: must be a name, = and a value"),
        (("args.sh", "--model", "args.sh"), "args.sh"),
    ],
)
def test_bad_input_ends_with_2(job: Muster, arguments: tuple[str, ...], says: str) -> None:
    done = job("import", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(says)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("nightly", "--format", "json"),
        ("--format", "json", "nightly"),
        ("show", "import"),
        ("show", "show"),
    ],
)
def test_any_other_word_is_the_name_of_a_job(job: Muster, arguments: tuple[str, ...]) -> None:
    """None is shown here, but it is the server that is asked."""
    done = job(*arguments)
    assert done.code == 1
    assert "no server answers at 127.0.0.1:1" in done.err
