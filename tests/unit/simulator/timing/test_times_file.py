"""The knobs of the time model: presets, files, changes, and what is refused."""

from pathlib import Path

import pytest

from simulator.timing import load_time_model
from simulator.timing.times_file import PRESETS
from tests.refusals import file_refusal, refusal


def test_a_file_changes_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "times.yaml"
    path.write_text("detection: {by_cause: {gpu: 5}}\nwarmup_s: 1\n")
    times, default = load_time_model(str(path)), load_time_model("default")

    assert times.detection_s("gpu") == 5
    assert times.detection_s("else") == default.detection_s("else")
    assert times.warmup_s == 1
    assert times.checkpoint == default.checkpoint


def test_changes_come_after_the_file() -> None:
    assert [load_time_model(name).source for name in PRESETS] == list(PRESETS)
    times = load_time_model("llama3,checkpoint.interval_s=600, detection.by_cause.nic=7")

    assert times.checkpoint.interval_s == 600
    assert times.checkpoint.stall_s == load_time_model("llama3").checkpoint.stall_s
    assert times.detection_s("nic") == 7
    assert times.detection_s("nccl-watchdog") == 600


def test_communicators_take_straight_lines_between_points() -> None:
    times = load_time_model("default")

    assert times.init_s(8_192) == pytest.approx(8.5)  # in proportion below the first
    assert times.init_s(16_384) == 17
    assert times.init_s(19_456) == pytest.approx((17 + 30) / 2)
    assert times.init_s(196_608) == pytest.approx(400)


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    for text, told in {
        "checkpoint: {kind: tape}\n": ":1: checkpoint.kind: must be one of remote, local, peer",
        "warmup_s: 1\nwarm_s: 2\n": ":2: warm_s: unknown key 'warm_s', did you mean warmup_s?",
        "checkpoint:\n  interval_s: 0\n": ":2: checkpoint.interval_s: must be more than 0",
        "detection: {by_cause: {gpu: -1}}\n": ":1: detection.by_cause.gpu: must be from 0",
        "network: {comm_share: 1}\n": ":1: network.comm_share: must be from 0 to less than 1",
        "communicators: [{gpus: 8, seconds: 1}, {gpus: 4, seconds: 1}]\n": "in order of gpus",
        "source: x\n": ":1: source: is not a setting",
    }.items():
        found = file_refusal(load_time_model, tmp_path / "times.yaml", text)
        assert found.startswith("times.yaml:")
        assert told in found


def test_a_bad_text_is_named() -> None:
    for text, told in {
        "nowhere": "--times: 'nowhere' is neither a file nor one of default, llama3",
        "llama3,warmup_s": "'warmup_s' is not a change like checkpoint.interval_s=1800",
        "llama3,warmup_s=soon": "--times llama3: warmup_s: must be a number, not 'soon'",
        "llama3,warm=1": "--times llama3: warm: unknown key 'warm'",
    }.items():
        assert told in refusal(load_time_model, text)
