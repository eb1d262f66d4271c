"""`muster job`: a job by its name, or a job file from another tool's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler import cli
from scheduler.files.inputs import load_job

ARGUMENTS = """--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024
--vocab-size $VOCAB --micro-batch-size 1 --global-batch-size 16 --bf16
"""
Muster = Callable[..., tuple[int, str, str]]


@pytest.fixture
def muster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Muster:
    """Runs the command in a folder with args.sh; no server answers."""
    (tmp_path / "args.sh").write_text(ARGUMENTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTER_ADDRESS", "127.0.0.1:1")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["muster", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        told = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, told.out, told.err

    return run


IMPORT = ("job", "import", "args.sh", "--gpus", "8", "--env", "VOCAB=1000")


def test_a_job_file_on_standard_output(muster: Muster, tmp_path: Path) -> None:
    code, out, err = muster(*IMPORT)
    assert (code, err) == (0, "")
    (tmp_path / "job.yaml").write_text(out)
    assert load_job("job.yaml").request.parallelism.dp == 8
    assert load_job("job.yaml").name == "args"


def test_a_job_file_in_a_file(muster: Muster) -> None:
    said = "job.yaml: the job file\n"
    assert muster(*IMPORT, "-o", "job.yaml", "--set", "priority=3") == (0, "", said)
    assert load_job("job.yaml").priority == 3
    assert muster("place", "job.yaml", "--fabric", "roce-24k")[0] == 0


def test_a_job_file_that_is_there_is_kept(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("mine\n")
    said = "--output: job.yaml exists; --force replaces it\n"
    assert muster(*IMPORT, "-o", "job.yaml") == (2, "", said)
    assert (tmp_path / "job.yaml").read_text() == "mine\n"
    assert muster(*IMPORT, "-o", "job.yaml", "--force")[0] == 0
    assert load_job("job.yaml").name == "args"


def test_a_model_from_a_job_file(muster: Muster, tmp_path: Path) -> None:
    muster(*IMPORT, "-o", "job.yaml")
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}'
    )
    code, _, err = muster(
        "job", "import", "ds.json", "--gpus", "16", "--model", "job.yaml", "-o", "ds.yaml"
    )
    assert (code, err) == (0, "ds.yaml: the job file\n")
    assert load_job("ds.yaml").request.model == load_job("job.yaml").request.model


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("args.sh", "--gpus", "8"), "args.sh:2: --vocab-size: must be a whole number"),
        (("args.sh", "--env", "VOCAB=9"), "args.sh: --gpus: is needed"),
        (("absent.sh",), "absent.sh: no such file"),
        (("args.sh", "--set", "priority"), "--set: must be a name, = and a value"),
        (("args.sh", "--from", "deepspeed"), "args.sh:1: is not JSON"),
        (("args.sh", "--model", "args.sh"), "args.sh"),
    ],
)
def test_bad_input_ends_with_2(muster: Muster, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = muster("job", "import", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(says)
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("nightly",),
        ("nightly", "--format", "json"),
        ("--format", "json", "nightly"),
        ("show", "import"),
        ("show", "show"),
    ],
)
def test_any_other_word_is_the_name_of_a_job(muster: Muster, arguments: tuple[str, ...]) -> None:
    """None is shown here, but it is the server that is asked."""
    code, _, err = muster("job", *arguments)
    assert code == 1
    assert "no server answers at 127.0.0.1:1" in err


def test_help_lists_both(muster: Muster) -> None:
    code, out, _ = muster("job", "--help")
    assert code == 0
    assert "show" in out
    assert "import" in out
