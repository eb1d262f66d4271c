"""Messages, mappings and values of a job say the same thing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from placement.fabric.constraints import Constraints
from placement.workload.request import (
    AUTO,
    Answer,
    Collective,
    Infeasible,
    Insufficient,
    Objective,
    Undecided,
)
from placement.workload.training import (
    Batch,
    ContextParallel,
    DataParallel,
    Recompute,
    Sync,
    Training,
)
from scheduler.cli.program import app
from scheduler.core import JobSpec
from scheduler.core.admission.admit import Code
from scheduler.core.model.commands import SubmitJob
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.events import JobSubmitted
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.job_terms import CheckpointTerms, DatasetTerms
from scheduler.eventlog.codec import decode, encode
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_job
from scheduler.files.job import job_from_mapping
from scheduler.v1 import job_pb2, placement_pb2
from scheduler.wire.jobs import answer_to_proto
from scheduler.wire.specs import SpecReader, spec_from_proto, spec_to_proto
from tests.build import (
    DEEPSEEK_V3,
    LLAMA3,
    fabric,
    gang,
    job_to_mapping,
    loaded,
    on,
    refused,
    request,
    spec,
    training,
)
from tests.refusals import file_refusal


def problems(read: Callable[[Any], object], given: object) -> dict[str, str]:
    """What is wrong with each field."""
    with pytest.raises(InputError) as caught:
        read(given)
    return dict(caught.value.problems)


def test_what_is_unset_is_left_to_the_defaults() -> None:
    message = job_pb2.JobSpec(name="a", parallelism=job_pb2.Parallelism(dp=8))
    found = spec_from_proto(message)
    assert found.request == request(dp=8, spares=AUTO)
    assert (found.priority, found.time_limit_s) == (0, None)


def test_a_zero_or_less_that_was_sent_is_not_a_default() -> None:
    message = job_pb2.JobSpec(name="a", parallelism=job_pb2.Parallelism(dp=0, pp=0))
    message.time_limit.SetInParent()
    message.constraints.max_zones = -1
    told = problems(spec_from_proto, message)
    wrong = ["constraints.max_zones", "parallelism.dp", "parallelism.pp", "time_limit"]
    assert sorted(told) == wrong
    assert told["constraints.max_zones"].startswith("must be at least 1")


def test_numbers_of_a_newer_caller_are_refused() -> None:
    message = spec_to_proto(spec("a"))
    message.objective = placement_pb2.Objective.ValueType(77)
    message.collectives["dp"] = job_pb2.Collective.ValueType(77)
    assert problems(spec_from_proto, message).keys() == {"objective", "collectives.dp"}


def test_jobs_alike_but_for_their_names_share_what_they_say() -> None:
    reader = SpecReader()
    first, second = (reader.read(spec_to_proto(spec(name, 4))) for name in ("a", "b"))
    assert (first.name, second.name) == ("a", "b")
    assert first.request is second.request
    assert [spec_to_proto(job).name for job in (first, second)] == ["a", "b"]


def test_messages_of_shared_parts_are_their_callers_own() -> None:
    job = JobSpec("a", request(dp=4), 1)
    spec_to_proto(job).labels["changed"] = "by its caller"
    assert spec_from_proto(spec_to_proto(job)) == job
    others = {"priority": 2, "labels": (("team", "x"),), "request": request(dp=8), "name": "b"}
    for other in (replace(job, **{field: value}) for field, value in others.items()):
        assert spec_from_proto(spec_to_proto(other)) == other


def test_every_word_of_the_job_file_has_its_number() -> None:
    kinds = {
        placement_pb2.Objective: Objective,
        job_pb2.Collective: Collective,
        job_pb2.DataParallel: DataParallel,
        job_pb2.Sync: Sync,
        job_pb2.ContextParallel: ContextParallel,
        job_pb2.Recompute: Recompute,
    }
    for wire, words in kinds.items():
        prefix = wire.Name(0).removesuffix("UNSPECIFIED")
        assert {prefix + word.value.upper() for word in words} == set(wire.keys()[1:])


def test_what_is_remembered_and_what_is_not_read_the_same() -> None:
    for kept in [0, 1, 8]:
        reader = SpecReader(kept, most_bytes=1_000)
        labels = tuple((f"key-{n:02}", "x" * 200) for n in range(40))
        jobs = [JobSpec(name, request(dp=4), labels=labels) for name in ("a", "b")]
        jobs += [JobSpec("c", request(dp=dp)) for dp in (1, 2, 1, 2)]
        assert [reader.read(spec_to_proto(job)) for job in jobs] == jobs


def test_a_wrong_specification_is_refused_as_often_as_it_comes() -> None:
    reader, message = SpecReader(), spec_to_proto(spec("a", 4))
    message.parallelism.dp = 0
    for _ in range(2):
        assert problems(reader.read, message).keys() == {"parallelism.dp"}
    assert message.name == "a"


FABRIC = fabric()


def test_each_of_the_four_answers_has_its_outcome() -> None:
    answers: list[tuple[Answer, placement_pb2.Outcome.ValueType]] = [
        (on(FABRIC, gang(2), 0, 1, spares=[2]), placement_pb2.OUTCOME_PLACED),
        (Insufficient(4, 3, (("z0", 3),), "needs 4"), placement_pb2.OUTCOME_INSUFFICIENT),
        (Infeasible("too large"), placement_pb2.OUTCOME_INFEASIBLE),
        (Undecided("gave up"), placement_pb2.OUTCOME_UNDECIDED),
    ]
    for answer, outcome in answers:
        message = answer_to_proto(FABRIC, request(), answer)
        assert message.outcome == outcome
        assert message.HasField("placement") == (outcome == placement_pb2.OUTCOME_PLACED)
        assert bool(message.reason) == (outcome != placement_pb2.OUTCOME_PLACED)


def test_a_placement_names_its_hosts_in_block_order() -> None:
    placement = answer_to_proto(FABRIC, request(), on(FABRIC, gang(2), 5, 0, spares=[2])).placement
    assert list(placement.hosts) == ["z1-r0-h1", "z0-r0-h0"]
    assert list(placement.spares) == ["z0-r1-h0"]
    assert [(c.tier, c.bytes_per_step) for c in placement.cuts] == [("zone", 160), ("rack", 160)]


def test_durations_are_whole_seconds_under_the_name_of_their_field() -> None:
    message = spec_to_proto(spec("a"))
    message.time_limit.FromMilliseconds(1_500)
    message.checkpoint.interval.FromNanoseconds(1)
    told = problems(spec_from_proto, message)
    assert told.keys() == {"checkpoint.interval", "time_limit"}
    assert "must be a whole number" in told["time_limit"]
    message.time_limit.FromSeconds(90)
    message.checkpoint.interval.FromSeconds(600)
    found = spec_from_proto(message)
    assert (found.time_limit_s, found.checkpoint.interval_s) == (90, 600)


# --- the training section and expert models --------------------------------------


EVERYTHING = training(
    data_parallel="zero2",
    shard_group=2,
    sync="micro_batch",
    gradient_dtype="bf16",
    sequence_parallel=False,
    context_parallel="ulysses",
    recompute="full",
    dropout=True,
    expert_tp=1,
    expert_hosts_per_token=4,
    dispatch_dtype="fp8",
    gpu_memory_gb=1_000,
    trained="lora",
    logit_bytes=4,
)
EXPERTS = JobSpec(
    "moe", request(tp=2, cp=2, ep=4, dp=4, model=DEEPSEEK_V3, batch=Batch(64), training=EVERYTHING)
)


def test_what_differs_from_its_default_is_printed_alone() -> None:
    assert job_to_mapping(EXPERTS)["training"].keys() == Training.__dataclass_fields__.keys()
    plain = JobSpec("a", request(dp=4, model=LLAMA3, batch=Batch(4)))
    mapping = job_to_mapping(plain)
    assert "training" not in mapping
    assert mapping["model"].keys() == {
        *("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "sequence", "dtype")
    }
    one = JobSpec("a", request(dp=4, training=training(recompute="full")))
    assert job_to_mapping(one)["training"] == {"recompute": "full"}


def test_a_log_of_before_reads_as_llama_3() -> None:
    kind, body = encode(JobSubmitted(1, "uid", JobSpec("a", request(dp=4, model=LLAMA3))))
    record = json.loads(body)
    del record["spec"]["request"]["training"]
    for key in ("experts", "head_dim", "gated"):
        del record["spec"]["request"]["model"][key]
    event = decode(kind, json.dumps(record))
    assert event.spec.request.training == Training()
    assert event.spec.request.model == LLAMA3


def test_faults_name_their_key() -> None:
    whole = job_to_mapping(JobSpec("a", request(dp=4, model=LLAMA3, batch=Batch(4))))
    for section, key, value, says in [
        ("training", "data_paralel", "fsdp", "did you mean data_parallel?"),
        ("training", "recompute", "yes", "must be 'selective', 'none' or 'full'"),
        ("training", "shard_group", -1, "must not be negative"),
        ("training", "shard_group", 3, "3 does not divide dp 4"),
        ("training", "gradient_dtype", "fp8", "must be one of bf16, fp16, fp32"),
        ("training", "dispatch_dtype", "int8", "must be one of bf16, fp16, fp32, fp8"),
        ("model", "expert", 8, "did you mean experts?"),
    ]:
        wrong = {**whole, section: {**whole.get(section, {}), key: value}}
        assert says in problems(job_from_mapping, wrong)[f"{section}.{key}"]


def test_the_server_refuses_what_needs_more_memory_than_stated() -> None:
    large = request(tp=8, model=LLAMA3, batch=Batch(1), training=training(gpu_memory_gb=80))
    answer = refused(loaded(), SubmitJob(JobSpec("large", large), "uid"))
    assert answer.code is Code.INVALID
    [violation] = answer.violations
    assert violation.field == "training.gpu_memory_gb"
    assert "more than 96 % of the 80 GiB" in violation.message


# --- ranges of replicas ----------------------------------------------------------


PLACED_ON = """\
name: small
kind: roce
gpus_per_host: 8
nic_gbps: 400
tiers: [{name: zone, count: 2}, {name: host, count: 4}]
"""


def elastic(dp: Any, **more: Any) -> dict[str, Any]:
    return {"name": "e", "parallelism": {"tp": 8, "dp": dp}, "traffic": {"dp": 1}, **more}


def test_a_range_is_the_most_and_the_least_unless_they_are_one_size() -> None:
    spec = job_from_mapping(elastic({"min": 2, "max": 8}))
    assert (spec.request.parallelism.dp, spec.min_dp) == (8, 2)
    assert job_from_mapping(elastic({"min": 8, "max": 8})) == job_from_mapping(elastic(8))


def test_what_is_no_range() -> None:
    for dp, message in [
        ({"min": 5, "max": 3}, "min 5 is more than max 3"),
        ({"min": 0, "max": 3}, "must be at least 1, is 0"),
        ({"min": 1}, "must be a whole number or {min: A, max: B}, not {min}"),
        ({}, "not {}"),
    ]:
        ((field, said),) = problems(job_from_mapping, elastic(dp)).items()
        assert field == "parallelism.dp"
        assert message in said


def test_a_batch_names_the_sizes_that_would_do(tmp_path: Path) -> None:
    text = "parallelism:\n  tp: 8\n  dp: {min: 5, max: 100}\nbatch: {global_sequences: 2048}\n"
    told = file_refusal(load_job, tmp_path / "e.yaml", text)
    assert told.startswith("e.yaml:4: batch.global_sequences")
    assert "from dp 5 to 100 for: 8, 16, 32, 64" in told


def test_a_placement_as_json_has_the_size_that_fits_and_the_legal_ones(tmp_path: Path) -> None:
    job, fabric, busy = (tmp_path / name for name in ("j.yaml", "f.yaml", "busy"))
    job.write_text(json.dumps(elastic({"min": 2, "max": 8})))
    fabric.write_text(PLACED_ON)
    words = ["place", str(job), "--fabric", str(fabric), "--busy", str(busy), "--spares=0"]
    busy.write_text("z0-h[0-2]\n")
    done = CliRunner().invoke(app, [*words, "--format=json"])
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["dp"], len(answer["hosts"])) == (0, 5, 5)
    assert answer["legal_dp"] == [2, 3, 4, 5, 6, 7, 8]
    busy.write_text("z0-h[0-3]\nz1-h[0-2]\n")  # the least does not fit
    done = CliRunner().invoke(app, [*words, "--format=json"])
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["dp"], answer["needed"]) == (3, 2, 2)


# --- jobs in every form ----------------------------------------------------------


def roles(dp: Any) -> list[dict[str, Any]]:
    shape = {"parallelism": {"tp": 8, "dp": 3}, "sends": {"worker": 10**9}}
    return [{"name": "trainer", **shape}, {"name": "worker", "parallelism": {"tp": 8, "dp": dp}}]


PLAIN = JobSpec("a", request(dp=4, traffic={"dp": 9}))
BY_TOKENS = request(dp=4, model=LLAMA3, batch=Batch(4))
AFFINITY = Affinity("rack", (("zone", ("serve-*", "b")), ("rack", ("c",))), "data")
AFTER = (DependencyTerm(DependencyKind.AFTEROK, "a"), DependencyTerm(DependencyKind.SINGLETON))
JOBS = {
    "what is minimised": JobSpec(
        "a", replace(request(dp=4), objective=Objective.SPREAD, spread_alpha=0.0)
    ),
    "constraints": JobSpec(
        "a",
        replace(request(dp=4), where=Constraints(2, "rack", (("disk", "nvme"), ("gpu", "h100")))),
        affinity=AFFINITY,
    ),
    "training": EXPERTS,
    "a range": job_from_mapping(elastic({"min": 2, "max": 8})),
    "a range of a role": job_from_mapping({"name": "a", "roles": roles({"min": 2, "max": 6})}),
    "its own reads": replace(PLAIN, dataset=DatasetTerms(read_gb_per_s=0.25, store="cache")),
    "a dataset": JobSpec("a", BY_TOKENS, dataset=DatasetTerms()),
    "tokens": JobSpec("a", BY_TOKENS, dataset=DatasetTerms(token_bytes=2.5, tokens=7, shards=9)),
    "checkpoints": replace(PLAIN, checkpoint=CheckpointTerms(7, 3, 9, 3, "archive")),
    "what it waits for": replace(
        PLAIN, hold=True, begin_ns=10**18, dependencies=AFTER, cancel_unmet=True
    ),
    "power": replace(PLAIN, power_cap_w=500),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_file_wire_and_log_say_the_same(job: JobSpec) -> None:
    assert job_from_mapping(job_to_mapping(job)) == job
    wire = spec_to_proto(job).SerializeToString()
    assert spec_from_proto(job_pb2.JobSpec.FromString(wire)) == job
    event = JobSubmitted(1, "uid", job)
    assert decode(*encode(event)) == event
