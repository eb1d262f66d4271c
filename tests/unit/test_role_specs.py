"""Job files of gangs of several roles: what they mean, what is wrong, and that messages keep it."""

from pathlib import Path

import pytest

from placement.workload.request import Objective
from placement.workload.traffic import Pattern, axis_traffic
from scheduler.core.policies.job_terms import RoleRestart
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_job
from scheduler.files.job import job_from_mapping, job_to_mapping
from scheduler.wire.specs import spec_from_proto, spec_to_proto

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlhf.yaml"


def test_roles_of_a_file_are_one_gang() -> None:
    spec = load_job(str(EXAMPLE))
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
    spec = load_job(str(EXAMPLE))
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
    path = tmp_path / "job.yaml"
    path.write_text(f"name: j\nroles:\n  - {{name: x, parallelism: {{tp: 8}}, {role}}}\n{rest}\n")
    with pytest.raises(InputError) as caught:
        load_job(str(path))
    (problem,) = caught.value.found
    assert problem.field == field
    assert problem.line == (4 if rest and not field.startswith("roles") else 3)


def test_path_of_a_duration_in_a_role_is_that_of_the_message() -> None:
    message = spec_to_proto(load_job(str(EXAMPLE)))
    message.roles[1].compute_time.FromSeconds(-1)
    with pytest.raises(InputError) as caught:
        spec_from_proto(message)
    assert caught.value.found[0].field == "roles.1.compute_time"
