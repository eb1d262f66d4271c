"""docs/traffic.md names every key that the job file has for the model and its training."""

import re
from pathlib import Path

import pytest

from placement.workload.memory import memory
from placement.workload.training import Batch, ModelShape, Training
from scheduler.files.inputs import load_job
from tests.build import DEEPSEEK_V3

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/traffic.md").read_text()


@pytest.mark.parametrize("section", [ModelShape, Batch, Training])
def test_every_key_is_described(section: type) -> None:
    described = set(re.findall(r"`(\w+)`", PAGE))
    assert set(section.__dataclass_fields__) <= described


def test_the_example_of_experts_is_deepseek_v3_and_fits() -> None:
    request = load_job(str(ROOT / "examples/deepseek-v3.yaml")).request
    assert request.model == DEEPSEEK_V3
    assert request.traffic == ()
    found = memory(request)
    assert found is not None
    assert found.total < request.training.gpu_memory_gb * 2**30


JOBS = [p for p in sorted((ROOT / "examples").glob("*.yaml")) if "parallelism" in p.read_text()]


@pytest.mark.parametrize("path", JOBS, ids=lambda p: p.stem)
def test_no_example_needs_more_than_a_usual_gpu(path: Path) -> None:
    found = memory(load_job(str(path)).request)
    assert found is None or found.total < 80 * 2**30
