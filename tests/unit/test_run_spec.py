"""`run` in a job file: what agents start, through file, message and log."""

from pathlib import Path
from typing import Any

import pytest

from scheduler.core.policies.job_terms import RunSpec
from scheduler.eventlog.codec import decode, encode
from scheduler.files.errors import InputError
from scheduler.files.job import job_from_document, job_from_mapping, job_to_mapping
from scheduler.files.yaml12 import load
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import SubmitJob, admitted, fabric, loaded

JOB = {"name": "a", "parallelism": {"tp": 4, "dp": 2}, "traffic": {"dp": 1}}
FULL = {
    "command": ["python3", "train.py", "--lr", "0.1", ""],
    "env": {"NCCL_DEBUG": "INFO", "A": ""},
    "workdir": "/scratch/a",
    "user": "alice",
    "per_host": 1,
    "grace_s": 5,
    "warm": ["torch", "torch.distributed"],
    "lineage": "pretrain",
    "resume_from": "/ckpt/iter_0000500",
    "gate": ["nhc"],
    "idle_s": 600,
    "env_from": {"HF_TOKEN": "secret:hf/token", "KEY": "file:/home/alice/.key"},
}
CONTAINED = {
    "command": ["./train"],
    "container": {"image": "docker://example.org/a:1", "mounts": ["/a:/b:ro", "/c:/c"]},
}


@pytest.mark.parametrize("run", [{"command": ["./train"]}, FULL, CONTAINED])
def test_what_to_run_reads_back_as_it_was_written(run: dict[str, Any]) -> None:
    spec = job_from_mapping(JOB | {"run": run})
    assert job_to_mapping(spec)["run"] == run
    assert spec_from_proto(spec_to_proto(spec)) == spec
    (event,) = admitted(loaded(fabric(gpus=4)), SubmitJob(spec, "uid"))
    assert decode(*encode(event)) == event


def test_a_job_without_it_has_none() -> None:
    spec = job_from_mapping(JOB)
    assert spec.run is None
    assert "run" not in job_to_mapping(spec)
    assert not spec_to_proto(spec).HasField("run")


@pytest.mark.parametrize(
    ("run", "path", "text"),
    [
        ({}, "run.command", "is required"),
        ({"command": "python train.py"}, "run.command", "a list of arguments"),
        ({"command": ["a", 1]}, "run.command", 'put it in quotes, "1"'),
        ({"command": ["a\0"]}, "run.command", "each argument must be a text"),
        ({"command": ["a"], "env_from": {"A": "hunter2"}}, "run.env_from.A", "and not the value"),
        ({"command": ["a"], "env_from": {"A": "file:/a/../b"}}, "run.env_from.A", "file:/PATH"),
        ({"command": ["a"], "env": {"RANK": "1"}}, "run.env.RANK", "set by muster"),
        ({"command": ["a"], "env": {"MUSTER_JOB": "1"}}, "run.env.MUSTER_JOB", "set by muster"),
        ({"command": ["a"], "env": {"A B": "1"}}, "run.env", "not the name of a variable"),
        ({"command": ["a"], "env": {"A": True}}, "run.env.A", 'put it in quotes, "true"'),
        ({"command": ["a"], "grace_s": "2 h"}, "run.grace_s", "a duration such as 90m"),
        ({"command": ["a"], "lineage": "a/b"}, "run.lineage", "letters"),
        ({"command": ["a"], "resume_from": "/ckpt/last"}, "run.resume_from", "PATH@500"),
        ({"command": ["a"], "new_run": True, "resume_from": "b"}, "run.new_run", "conflicts"),
        ({"command": ["a"], "env": {"A": "x\0y"}}, "run.env.A", "one line, without NUL"),
        ({"command": ["a"], "workdir": "data"}, "run.workdir", "absolute path"),
        ({"command": ["a"], "user": "../root"}, "run.user", "name of a user"),
        ({"command": ["a"], "per_host": 4}, "run.per_host", "must be 1"),
        ({"command": ["a"], "grace_s": 0}, "run.grace_s", "at least 1"),
        ({"command": ["a"], "warm": ["torch; x"]}, "run.warm", "not the name of a Python module"),
        ({"command": ["a"], "warm": ["torch"]}, "run.warm", "begins with `python FILE`"),
        ({"command": ["python", "-c", "1"], "warm": ["torch"]}, "run.warm", "`python FILE`"),
        ({"command": ["a"], "container": {"image": "--x"}}, "run.container.image", "REGISTRY/NAME"),
        (
            {"command": ["a"], "container": {"image": "a", "mounts": ["/a/../b:/b"]}},
            "run.container.mounts",
            "absolute paths",
        ),
        (
            {"command": ["python", "t.py"], "warm": ["torch"], "container": {"image": "a"}},
            "run.warm",
            "conflicts with container",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_key(
    run: dict[str, Any], path: str, text: str
) -> None:
    with pytest.raises(InputError) as caught:
        job_from_mapping(JOB | {"run": run})
    (problem,) = caught.value.found
    assert problem.field == path
    assert text in problem.message


def test_ranks_on_cpus_have_no_keys_of_a_step() -> None:
    run = {"command": ["./serve"], "cpu_ranks": 4}
    spec = job_from_mapping({"name": "a", "parallelism": {"dp": 16}, "run": run})
    assert job_to_mapping(spec)["run"] == run
    assert spec_from_proto(spec_to_proto(spec)) == spec
    with pytest.raises(InputError) as caught:
        job_from_mapping(JOB | {"run": run, "compute_time_s": 1})
    fields = [problem.field for problem in caught.value.found]
    assert fields == ["parallelism.tp", "compute_time_s", "traffic"]
    assert "of ranks on CPUs no step is modelled" in caught.value.found[0].message


def test_a_value_of_two_lines_is_refused_with_its_line_and_in_a_request(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    lines = [
        "name: a",
        "parallelism: {dp: 2}",
        "run:",
        "  command: [x]",
        "  env:",
        "    A: |",
        "      b",
    ]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        job_from_document(load(path))
    assert str(caught.value) == f"{path}:6: run.env.A: must be one line, without NUL, not 'b\\n'"
    message = spec_to_proto(job_from_mapping(JOB | {"run": FULL}))
    message.run.env["NCCL_DEBUG"] = "INFO\nX=1"
    with pytest.raises(InputError, match=r"run\.env\.NCCL_DEBUG: must be one line"):
        spec_from_proto(message)


def test_numbers_in_a_file_reach_the_process_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "parallelism: {dp: 2}\ntime_limit_s: 2h30m\ncompute_time_s: 2m\nrun:\n"
        "  command: [python3, train.py, --lr, 3e-4, --version, 1.10, -n, 010, --fast, true]\n"
        "  env: {OMP_NUM_THREADS: 8, DEBUG: True}\n  grace_s: 5m\n"
    )
    spec = job_from_document(load(path), "a")
    assert spec.run.command[3:] == ("3e-4", "--version", "1.10", "-n", "010", "--fast", "true")
    assert spec.run.env == (("DEBUG", "True"), ("OMP_NUM_THREADS", "8"))
    assert (spec.time_limit_s, spec.run.grace_s) == (9_000, 300)
    assert spec.request.compute_s == 120


def test_a_fault_has_the_same_words_in_a_request() -> None:
    message = spec_to_proto(job_from_mapping(JOB | {"run": FULL}))
    message.run.grace.seconds = 0
    with pytest.raises(InputError, match=r"run\.grace: must be at least 1"):
        spec_from_proto(message)


@pytest.mark.parametrize(
    ("command", "is_python"),
    [
        (("python", "a.py"), True),
        (("/opt/env/bin/python3.12", "-m", "train"), True),
        (("python", "-m"), False),
        (("python", "-u", "a.py"), False),
        (("./train",), False),
    ],
)
def test_python_programs_can_be_forked(command: tuple[str, ...], is_python: bool) -> None:
    assert RunSpec(command).is_python is is_python
