"""Logs of training runs and of nccl-tests: what is read of them, and what is refused."""

from pathlib import Path

import pytest

from importers.measured.nccl import read_sizes
from importers.measured.steps import read_steps
from tests.refusals import file_refusal

TOKENS = 32_768
LINES = {
    "Megatron-LM": (
        " iteration 20/ 500 | elapsed time per iteration (ms): 12,137.8 | loss: 1",
        12.1378,
    ),
    "Megatron-DeepSpeed": (
        " iteration 2/ 95 | elapsed time per iteration (s): 769.99 | loss: 6.3",
        769.99,
    ),
    "NeMo": (
        "Training epoch 0, iteration 8/29 | train_step_timing in s: 27.01 | consumed: 4",
        27.01,
    ),
    "TorchTitan": ("step: 20  loss: 11.8  \x1b[32mtps: 4,096\x1b[39m  mfu: 25.62%", TOKENS / 4_096),
}


@pytest.mark.parametrize("framework", LINES)
def test_a_log_says_how_long_steps_take(framework: str, tmp_path: Path) -> None:
    line, seconds = LINES[framework]
    log = tmp_path / "train.log"
    log.write_text("starting\n" + 3 * f"{line}\n")
    steps = read_steps(str(log), TOKENS)
    assert steps.framework == framework
    assert steps.seconds == pytest.approx((seconds,) * 3)


def test_the_first_steps_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    times = [90, 30, *[10] * 18]
    log.write_text("".join(f"train_step_timing in s: {each}\n" for each in times))
    assert read_steps(str(log), TOKENS).typical_s == 10


def test_a_log_without_good_steps_is_refused(tmp_path: Path) -> None:
    for text, told in (
        ("nothing\n", "train.log: has no step of Megatron-LM"),
        ("\ntrain_step_timing in s: 0.0\n", "train.log:2: NeMo: a step of '0.0'"),
    ):
        found = file_refusal(lambda path: read_steps(path, TOKENS), tmp_path / "train.log", text)
        assert found.startswith(told)


ROWS = """\
#  Rank  0 Group  0 Pid  1 on     z0-h0 device  0 [0x1b] NVIDIA H100
#  Rank  1 Group  0 Pid  1 on     z0-h1 device  0 [0x1b] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    60.00   17.48   32.77      0    61.0
"""


def test_nccl_tests_say_sizes_and_hosts(tmp_path: Path) -> None:
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(ROWS)
    sizes = read_sizes(str(file))
    assert sizes.rows == ((1_048_576, 60.0, 32.77),)
    assert sizes.hosts == ("z0-h0", "z0-h1")
    assert sizes.collective == "all_reduce"


def test_a_damaged_row_names_its_line(tmp_path: Path) -> None:
    text = ROWS.replace("60.00   17.48   32.77      0    61.0", "60.00")
    found = file_refusal(read_sizes, tmp_path / "out.txt", text)
    assert found.startswith("out.txt:4: a row of nccl-tests has")
