"""Job files: what they mean, what is wrong with them, and that messages keep it."""

from pathlib import Path
from typing import Any

import pytest

from placement.workload.parallelism import Parallelism
from placement.workload.replicas import sized
from placement.workload.request import AUTO, Batch, Collective, Objective, SpareRule
from placement.workload.traffic import Pattern, axis_traffic
from scheduler.core.policies.job_terms import RoleRestart, RunSpec
from scheduler.eventlog.codec import decode, encode
from scheduler.files.errors import InputError, Problem
from scheduler.files.inputs import load_job
from scheduler.files.job import job_from_mapping
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import LLAMA3, SubmitJob, admitted, fabric, job_to_mapping, loaded
from tests.refusals import file_refusal, refusal

EXAMPLES = Path(__file__).parents[2] / "examples"


def refused(mapping: dict[str, Any]) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        job_from_mapping(mapping)
    return caught.value.found


def test_a_name_that_no_server_takes_is_refused() -> None:
    for name in ("a\nb", "a\u202eb", "\U0001f600", "x" * 5000, "-x", "a b"):
        (found,) = refused({"name": name, "parallelism": {"dp": 2}})
        assert found.field == "name"
        assert found.message.startswith("must be 1 to 128 letters, digits, '-', '_' or '.'")
        assert len(found.message) < 200
        assert found.message.isprintable()


def test_every_key_arrives() -> None:
    spec = job_from_mapping(
        {
            "name": "all",
            "parallelism": {"tp": 8, "pp": 2, "dp": 4, "order": "tp-cp-ep-dp-pp"},
            "traffic": {"pp": 3},
            "collectives": {"dp": "hierarchical"},
            "model": {key: getattr(LLAMA3, key) for key in LLAMA3.__dataclass_fields__},
            "batch": {"global_sequences": 64, "micro_sequences": 2, "virtual_stages": 4},
            "spares": 3,
            "objective": "cut",
            "spread_alpha": 0.25,
            "cut_slack": "0.25 %",
            "priority": -7,
            "time_limit_s": 60,
        }
    )
    request = spec.request
    assert (spec.name, spec.priority, spec.time_limit_s) == ("all", -7, 60)
    assert request.parallelism == Parallelism(tp=8, pp=2, dp=4, order="tp-cp-ep-dp-pp")
    assert (request.spread_alpha, request.cut_slack) == (0.25, 0.0025)
    assert request.traffic == (("pp", 3),)
    assert request.collectives == (("dp", Collective.HIERARCHICAL),)
    assert (request.model, request.batch) == (LLAMA3, Batch(64, 2, 4))
    assert request.spares == SpareRule(hosts=3)
    least = job_from_mapping({"parallelism": {}})
    assert (least.request.spares, least.priority) == (AUTO, 0)


def test_spares() -> None:
    for spares, rule in {
        "auto": AUTO,
        0: SpareRule(hosts=0),
        5: SpareRule(hosts=5),
        "5": SpareRule(hosts=5),
        "2%": SpareRule(share=0.02),
        "0.5%": SpareRule(share=0.005),
    }.items():
        assert job_from_mapping({"parallelism": {}, "spares": spares}).request.spares == rule


def test_traffic_however_it_is_written() -> None:
    for number in (0, 3, 3.0, 400e9, 10**15):
        spec = job_from_mapping({"parallelism": {"dp": 2}, "traffic": {"dp": number}})
        assert axis_traffic(spec.request)[0].edge_bytes == number


@pytest.mark.parametrize(
    ("keys", "field", "message"),
    [
        ({"parallelism": {"pp": 2, "order": "tp-dp"}}, "parallelism.order", "leaves out pp"),
        ({"parallelism": {"order": "tp-tp"}}, "parallelism.order", "names an axis twice"),
        ({"parallelism": {"dp": 2**31}}, "parallelism.dp", "must be at most"),
        ({"collectives": {"pp": "hierarchical"}}, "collectives.pp", "chain"),
        ({"labels": {"a": {"b": "c"}}}, "labels.a", "must be a text of at most 256 characters"),
        ({"priority": True}, "priority", "must be a whole number, not true"),
        *(
            ({"spares": spares}, "spares", "must be auto, a whole number of hosts or a share")
            for spares in (-1, 1.5, "few", "-2%", "101%", "nan%", "%", True, None, [], "")
        ),
        *(
            ({"parallelism": {"dp": 2}, "traffic": {"dp": number}}, "traffic.dp", "must ")
            for number in (1.5, -1, "3", "text", True, [], float("nan"), 1e300)
        ),
        *(
            ({"constraints": {key: value}}, f"constraints.{field}", message)
            for key, value, field, message in (
                ("exlusive", "rack", "exlusive", "did you mean exclusive?"),
                ("hosts", ["h100"], "hosts", "must map labels to values"),
                ("hosts", {"gpu": 100}, "hosts", "must be a non-empty text"),
                ("avoid", ["b"], "avoid", "must map tiers to job names"),
                ("avoid", {"zone": "b"}, "avoid", "must be a list of job names"),
                ("within", {"sp": "rack"}, "within.sp", "unknown axis"),
            )
        ),
    ],
)
def test_a_fault_and_its_field(keys: dict[str, Any], field: str, message: str) -> None:
    (found,) = refused({"parallelism": {}, **keys})
    assert found.field == field
    assert message in found.message


def test_a_batch_that_does_not_divide_over_the_replicas() -> None:
    model = job_to_mapping(load_job(str(EXAMPLES / "small.yaml")))["model"]
    job = {"parallelism": {"dp": 3}, "model": model}
    assert refused(job)[0].field == "batch"
    found = refused({**job, "batch": {"global_sequences": 4}})[0]
    assert found.field == "batch.global_sequences"
    assert found.message == "4 sequences do not divide over dp 3 in micro-batches of 1"


def test_file_and_line_in_file_order(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    text = "traffic:\n  dp: -3\nparallelism:\n  dp: no\n  tpp: 8\n"
    assert file_refusal(load_job, path, text).splitlines() == [
        "job.yaml:2: traffic.dp: must not be negative, is -3",
        "job.yaml:4: parallelism.dp: must be a whole number, not 'no'",
        "job.yaml:5: parallelism.tpp: unknown axis 'tpp', did you mean tp?"
        " known are tp, cp, ep, pp, dp, order",
    ]
    assert file_refusal(load_job, path, "priority: 1\n") == "job.yaml: parallelism: is required"
    path.write_text("parallelism: {dp: 2}\n")
    assert load_job(str(path)).name == "job"  # called after its file


def test_many_faults_are_cut_short_in_the_message_alone_which_cannot_drive_the_terminal() -> None:
    keys = {f"\x1b[31m key{i}": i for i in range(30)}
    assert len(refused({"parallelism": {}, **keys})) == 30
    said = refusal(job_from_mapping, {"parallelism": {}, **keys})
    assert said.endswith("... and 10 more")
    assert said.replace("\n", "").isprintable()


def test_a_measured_compute_time_is_enough_for_the_objective_time() -> None:
    axes = {"parallelism": {"tp": 8, "dp": {"min": 2, "max": 4}}, "traffic": {"dp": 10}}
    assert job_from_mapping(axes).request.objective is Objective.CUT
    request = job_from_mapping({**axes, "compute_time_s": 3.2}).request
    assert (request.objective, request.compute_s) == (Objective.TIME, 3.2)
    assert sized(request, 2).compute_s == 6.4  # the same batch over half of the replicas


# --- constraints ---------------------------------------------------------------


CONSTRAINED = {
    "name": "c",
    "parallelism": {"tp": 8, "dp": 4},
    "constraints": {
        "max_zones": 2,
        "same": "rack",
        "exclusive": "rack",
        "hosts": {"gpu": "h100", "disk": "nvme"},
        "avoid": {"zone": ["serve-*", "b"], "rack": ["c"]},
        "near": "data",
        "within": {"ep": "rack", "tp": "host"},
        "segment": 2,
    },
}


def test_constraints_arrive_and_are_written_back() -> None:
    spec = job_from_mapping(CONSTRAINED)
    where, beside = spec.request.where, spec.affinity
    assert (where.max_zones, where.same) == (2, "rack")
    assert where.labels == (("disk", "nvme"), ("gpu", "h100"))
    assert (where.within, where.segment) == ((("ep", "rack"), ("tp", "host")), 2)
    assert (beside.exclusive, beside.near) == ("rack", "data")
    assert beside.avoid == (("zone", ("serve-*", "b")), ("rack", ("c",)))
    assert job_from_mapping(job_to_mapping(spec)) == spec
    assert job_to_mapping(spec)["constraints"] == CONSTRAINED["constraints"]


# --- gangs of several roles ----------------------------------------------------------

RLHF = Path(__file__).parents[2] / "examples" / "rlhf.yaml"


def test_roles_of_a_file_are_one_gang() -> None:
    spec = load_job(str(RLHF))
    request = spec.request
    assert request.parallelism.world_size == 416
    assert [role.name for role in request.roles] == ["trainer", "rollout", "reward"]
    assert request.objective is Objective.CUT
    sent = [each for each in axis_traffic(request) if each.pattern is Pattern.PAIRS]
    assert sent[0].axis == "trainer-rollout"
    assert sent[0].edge_bytes * 256 * 128 == pytest.approx(2260e9, rel=1e-6)
    rollout = spec.run.roles[1]
    assert spec.run.of_role(rollout).command == ("python", "rollout.py")
    assert (rollout.restart, spec.run.roles[0].restart) == (RoleRestart.ROLE, RoleRestart.GANG)


def test_roles_are_the_same_through_a_mapping_and_a_message() -> None:
    spec = load_job(str(RLHF))
    assert job_from_mapping(job_to_mapping(spec)) == spec
    assert spec_from_proto(spec_to_proto(spec)) == spec


def test_constraints_of_roles_are_the_same_through_a_mapping_and_a_message() -> None:
    trainer = {"name": "a", "parallelism": {"tp": 8, "dp": 4}, "same": "rack", "segment": 2}
    worker = {"name": "b", "parallelism": {"tp": 8, "pp": 2}, "within": {"pp": "rack"}}
    worker |= {"beside": {"zone": ["a"]}, "avoid": {"rack": ["a"], "zone": ["c"]}}
    other = {"name": "c", "parallelism": {"tp": 8}}
    mapping = {"name": "j", "roles": [trainer, worker, other], "constraints": {"same": "zone"}}
    spec = job_from_mapping(mapping)
    where = [role.request.where for role in spec.request.roles]
    assert [(each.same, each.within, each.segment) for each in where] == [
        ("rack", (), 2),
        ("zone", (("pp", "rack"),), 0),
        ("zone", (), 0),
    ]
    assert job_to_mapping(spec)["roles"][1]["avoid"] == {"rack": ["a"], "zone": ["c"]}
    assert job_from_mapping(job_to_mapping(spec)) == spec
    assert spec_from_proto(spec_to_proto(spec)) == spec


def test_numbers_in_commands_of_roles_are_taken_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    role = "{name: a, parallelism: {tp: 8}, command: [train, 3e-4], env: {LR: 1e-5}}"
    path.write_text(f"name: j\nroles:\n  - {role}\n")
    run = load_job(str(path)).run
    assert run.roles[0].command == ("train", "3e-4")
    assert run.roles[0].env == (("LR", "1e-5"),)


@pytest.mark.parametrize(
    ("role", "rest", "field"),
    [
        ("sends: {y: 5}", "", "roles.0.sends"),
        ("restart: role", "", "roles.0.command"),
        ("env: {RANK: '4'}", "", "roles.0.env.RANK"),
        ("batch: {global_sequences: 0}", "", "roles.0.batch.global_sequences"),
        ("command: [a]", "parallelism: {tp: 2}", "parallelism"),
        ("command: [a]", "model: {}", "model"),
        ("command: [a]", "objective: spread", "objective"),
        ("command: [a]", "checkpoint: {peers: 1}", "checkpoint.peers"),
        ("command: [a]", "constraints: {segment: 2}", "constraints.segment"),
        ("same: x, command: [a]", "constraints: {max_zones: 2}", "constraints.max_zones"),
        ("within: {xp: rack}", "", "roles.0.within.xp"),
        ("beside: {zone: [y]}", "", "roles.0.beside.zone"),
        ("avoid: {rack: [x]}", "", "roles.0.avoid.rack"),
        ("per_host: 1", "run: {workdir: /tmp}", "roles.0.command"),
        ("command: [python, a.py]", "run: {warm: [torch]}", "run.warm"),
    ],
)
def test_wrong_key_of_a_role_is_refused_by_its_line(
    tmp_path: Path, role: str, rest: str, field: str
) -> None:
    text = f"name: j\nroles:\n  - {{name: x, parallelism: {{tp: 8}}, {role}}}\n{rest}\n"
    line = 4 if rest and not field.startswith("roles") else 3
    assert file_refusal(load_job, tmp_path / "job.yaml", text).startswith(
        f"job.yaml:{line}: {field}: "
    )


def test_path_of_a_duration_in_a_role_is_that_of_the_message() -> None:
    message = spec_to_proto(load_job(str(RLHF)))
    message.roles[1].compute_time.FromSeconds(-1)
    assert refusal(spec_from_proto, message).startswith("roles.1.compute_time: ")


# --- `run`: what agents start, through file, message and log -------------------------

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
    "command": ["python", "t.py"],
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


UP_AND_DOWN = {"image": "a", "mounts": ["/a/../b:/b"]}


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
        ({"command": ["a"], "warm": ["torch; x"]}, "run.warm", "the name of a Python module"),
        ({"command": ["a"], "warm": ["torch"]}, "run.warm", "begins with `python FILE`"),
        ({"command": ["a"], "container": {"image": "--x"}}, "run.container.image", "REGISTRY/NAME"),
        ({"command": ["a"], "container": UP_AND_DOWN}, "run.container.mounts", "absolute paths"),
        ({**CONTAINED, "warm": ["torch"]}, "run.warm", "conflicts with container"),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_key(
    run: dict[str, Any], path: str, text: str
) -> None:
    (told,) = refusal(job_from_mapping, JOB | {"run": run}).splitlines()
    assert told.startswith(f"{path}: ")
    assert text in told


def test_ranks_on_cpus_have_no_keys_of_a_step() -> None:
    run = {"command": ["./serve"], "cpu_ranks": 4}
    spec = job_from_mapping({"name": "a", "parallelism": {"dp": 16}, "run": run})
    assert job_to_mapping(spec)["run"] == run
    assert spec_from_proto(spec_to_proto(spec)) == spec
    told = refusal(job_from_mapping, JOB | {"run": run, "compute_time_s": 1}).splitlines()
    fields = [line.partition(": ")[0] for line in told]
    assert fields == ["parallelism.tp", "compute_time_s", "traffic"]
    assert "of ranks on CPUs no step is modelled" in told[0]


def test_a_value_of_two_lines_is_refused_with_its_line_and_in_a_request(tmp_path: Path) -> None:
    text = "parallelism: {dp: 2}\nrun:\n  command: [x]\n  env:\n    A: |\n      b\n"
    told = file_refusal(load_job, tmp_path / "a.yaml", text)
    assert told == "a.yaml:5: run.env.A: must be one line, without NUL, not 'b\\n'"
    message = spec_to_proto(job_from_mapping(JOB | {"run": FULL}))
    message.run.env["NCCL_DEBUG"] = "INFO\nX=1"
    message.run.grace.seconds = 0
    env, grace = refusal(spec_from_proto, message).splitlines()
    assert env.startswith("run.env.NCCL_DEBUG: must be one line")
    assert grace.startswith("run.grace: must be at least 1")


def test_numbers_in_a_file_reach_the_process_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "parallelism: {dp: 2}\ntime_limit_s: 2h30m\ncompute_time_s: 2m\nrun:\n"
        "  command: [python3, train.py, --lr, 3e-4, --version, 1.10, -n, 010, --fast, true]\n"
        "  env: {OMP_NUM_THREADS: 8, DEBUG: True}\n  grace_s: 5m\n"
    )
    spec = load_job(str(path))
    assert spec.run.command[3:] == ("3e-4", "--version", "1.10", "-n", "010", "--fast", "true")
    assert spec.run.env == (("DEBUG", "True"), ("OMP_NUM_THREADS", "8"))
    assert (spec.time_limit_s, spec.run.grace_s) == (9_000, 300)
    assert spec.request.compute_s == 120


def test_python_programs_can_be_forked() -> None:
    for words in ("python a.py", "/opt/env/bin/python3.12 -m train"):
        assert RunSpec(tuple(words.split())).is_python
    for words in ("python -m", "python -u a.py", "./train"):
        assert not RunSpec(tuple(words.split())).is_python
