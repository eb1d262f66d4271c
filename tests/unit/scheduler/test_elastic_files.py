"""`dp: {min, max}` in job files, messages and the answer of `muster place`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scheduler.cli.program import app
from scheduler.files.inputs import InputError, load_job
from scheduler.files.job import job_from_mapping, job_to_mapping
from scheduler.wire.specs import spec_from_proto, spec_to_proto

FABRIC = """\
name: small
kind: roce
gpus_per_host: 8
nic_gbps: 400
tiers: [{name: zone, count: 2}, {name: host, count: 4}]
"""


def elastic(dp: Any, **more: Any) -> dict[str, Any]:
    return {"name": "e", "parallelism": {"tp": 8, "dp": dp}, "traffic": {"dp": 1}, **more}


def test_a_range_is_the_most_and_the_least() -> None:
    spec = job_from_mapping(elastic({"min": 2, "max": 8}))
    assert (spec.request.parallelism.dp, spec.min_dp) == (8, 2)


def test_it_survives_its_mapping_and_its_message() -> None:
    spec = job_from_mapping(elastic({"min": 2, "max": 8}))
    assert job_from_mapping(job_to_mapping(spec)) == spec
    assert spec_from_proto(spec_to_proto(spec)) == spec


def test_a_range_of_one_size_is_no_range() -> None:
    assert job_from_mapping(elastic({"min": 8, "max": 8})) == job_from_mapping(elastic(8))


@pytest.mark.parametrize(
    ("dp", "message"),
    [
        ({"min": 5, "max": 3}, "min 5 is more than max 3"),
        ({"min": 0, "max": 3}, "must be at least 1, is 0"),
        ({"min": 1}, "must be a whole number or {min: A, max: B}, not {min}"),
        ({}, "not {}"),
    ],
)
def test_what_is_no_range(dp: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        job_from_mapping(elastic(dp))
    ((field, said),) = caught.value.problems
    assert field == "parallelism.dp"
    assert message in said


def test_a_batch_names_the_sizes_that_would_do(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        "parallelism:\n  tp: 8\n  dp: {min: 5, max: 100}\nbatch: {global_sequences: 2048}\n"
    )
    with pytest.raises(InputError, match=r"from dp 5 to 100 for: 8, 16, 32, 64") as caught:
        load_job(str(path))
    assert f"{path}:4: batch.global_sequences" in str(caught.value)


class TestPlace:
    def answer(self, tmp_path: Path, busy: str) -> tuple[int, dict[str, Any]]:
        files = {
            "f.yaml": FABRIC,
            "busy": busy,
            "j.yaml": json.dumps(elastic({"min": 2, "max": 8})),
        }
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        at = [str(tmp_path / name) for name in ("j.yaml", "f.yaml", "busy")]
        done = CliRunner().invoke(
            app,
            ["place", at[0], "--fabric", at[1], "--busy", at[2], "--spares=0", "--format=json"],
        )
        return done.exit_code, json.loads(done.stdout)

    def test_json_has_the_size_and_the_legal_ones(self, tmp_path: Path) -> None:
        code, answer = self.answer(tmp_path, "z0-h[0-2]\n")
        assert (code, answer["dp"], len(answer["hosts"])) == (0, 5, 5)
        assert answer["legal_dp"] == [2, 3, 4, 5, 6, 7, 8]

    def test_the_least_that_does_not_fit_is_insufficient(self, tmp_path: Path) -> None:
        code, answer = self.answer(tmp_path, "z0-h[0-3]\nz1-h[0-2]\n")
        assert (code, answer["dp"], answer["needed"]) == (3, 2, 2)
