"""The training section and expert models: in the job file, on the wire, in the log."""

import json
from typing import Any

import pytest

from placement.workload.training import Batch, Training
from scheduler.core import JobSpec
from scheduler.core.admission.admit import Code
from scheduler.core.model.commands import SubmitJob
from scheduler.core.model.events import JobSubmitted
from scheduler.eventlog.codec import decode, encode
from scheduler.files.errors import InputError
from scheduler.files.job import job_from_mapping, job_to_mapping
from scheduler.v1 import job_pb2
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import DEEPSEEK_V3, LLAMA3, loaded, refused, request, training

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
JOB = JobSpec(
    "moe",
    request(tp=2, cp=2, ep=4, dp=4, model=DEEPSEEK_V3, batch=Batch(64), training=EVERYTHING),
)


def refusal(**sections: Any) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        job_from_mapping({"parallelism": {"dp": 4}, **sections})
    return dict(caught.value.problems)


def test_every_key_differs_from_its_default_here() -> None:
    fields = Training.__dataclass_fields__
    assert job_to_mapping(JOB)["training"].keys() == fields.keys()


def test_file_wire_and_log_say_the_same() -> None:
    assert job_from_mapping(job_to_mapping(JOB)) == JOB
    wire = spec_to_proto(JOB).SerializeToString()
    assert spec_from_proto(job_pb2.JobSpec.FromString(wire)) == JOB
    event = JobSubmitted(1, "uid", JOB)
    assert decode(*encode(event)) == event


def test_defaults_are_not_printed() -> None:
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
    assert isinstance(event, JobSubmitted)
    assert event.spec.request.training == Training()
    assert event.spec.request.model == LLAMA3


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("training", "data_paralel", "fsdp", "did you mean data_parallel?"),
        ("training", "recompute", "yes", "must be 'selective', 'none' or 'full'"),
        ("training", "shard_group", -1, "must not be negative"),
        ("training", "gradient_dtype", "fp8", "must be one of bf16, fp16, fp32"),
        ("training", "dispatch_dtype", "int8", "must be one of bf16, fp16, fp32, fp8"),
        ("model", "expert", 8, "did you mean experts?"),
    ],
)
def test_faults_name_their_key(section: str, key: str, value: object, says: str) -> None:
    whole = job_to_mapping(JobSpec("a", request(dp=4, model=LLAMA3, batch=Batch(4))))
    found = refusal(**{**whole, section: {**whole.get(section, {}), key: value}})
    assert says in found[f"{section}.{key}"]


def test_what_does_not_suit_the_axes_is_named_too() -> None:
    whole = job_to_mapping(JobSpec("a", request(dp=4, model=LLAMA3, batch=Batch(4))))
    found = refusal(**{**whole, "training": {"shard_group": 3}})
    assert found == {"training.shard_group": "3 does not divide dp 4"}


def test_the_server_refuses_what_needs_more_memory_than_stated() -> None:
    large = request(tp=8, model=LLAMA3, batch=Batch(1), training=training(gpu_memory_gb=80))
    answer = refused(loaded(), SubmitJob(JobSpec("large", large), "uid"))
    assert answer.code is Code.INVALID
    [violation] = answer.violations
    assert violation.field == "training.gpu_memory_gb"
    assert "more than 96 % of the 80 GiB" in violation.message
