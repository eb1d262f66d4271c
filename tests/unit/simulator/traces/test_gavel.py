"""Gavel's files: what a field means depends on how many there are."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest

from simulator.traces.formats.gavel import RATE
from simulator.traces.record import SECOND_NS
from tests.tracefiles import read_text

TYPE = "ResNet-18 (batch size 128)"
SEVEN = [TYPE, "python3 main.py", "-n", "1", "1168", "30.5", "4"]
TEN = [TYPE, "python3 main.py", "cifar10", "-n", "1", "1168", "4", "1", "-1.000000", "30.5"]
TWELVE = [*TEN[:7], "static", "1", "-1.000000", "77", "30.5"]


@pytest.mark.parametrize("fields", [SEVEN, TEN])
def test_arrival_and_size_change_places(tmp_path: Path, fields: list[str]) -> None:
    (job,), told = read_text(tmp_path, "gavel", "\t".join(fields) + "\n")

    assert told == []
    assert (job.id, job.queue, job.gpus) == ("line-1", TYPE, 4)
    assert job.submit_ns == 30_500_000_000
    assert job.run_ns == pytest.approx(1168 / RATE[TYPE] / sqrt(4) * SECOND_NS)


def test_shockwave_says_how_long_a_job_runs(tmp_path: Path) -> None:
    (job,), _ = read_text(tmp_path, "gavel", "\t".join(TWELVE))

    assert (job.run_ns, job.gpus, job.submit_ns) == (77 * SECOND_NS, 4, 30_500_000_000)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({0: "GPT-9"}, "1: job_type: must be one whose rate is known, not 'GPT-9'"),
        ({4: "-5"}, "1: total_steps: must not be negative"),
        ({4: "x"}, "1: total_steps: must be a number, not 'x'"),
        ({5: "-1"}, "1: arrival_time: must not be negative: '-1'"),
        ({6: "0"}, "1: GPUs: must be more than 0, not '0'"),
    ],
)
def test_jobs_that_cannot_be_replayed(tmp_path: Path, change: dict[int, str], told: str) -> None:
    fields = [change.get(i, field) for i, field in enumerate(SEVEN)]
    jobs, (fault,) = read_text(tmp_path, "gavel", "\t".join(fields))

    assert jobs == []
    assert fault.startswith(told)


def test_another_number_of_fields_is_told(tmp_path: Path) -> None:
    _, (fault,) = read_text(tmp_path, "gavel", "\t".join(SEVEN[:5]))

    assert fault == "1: fields: must be 7, 10 or 12 between tabs, not '5'"
