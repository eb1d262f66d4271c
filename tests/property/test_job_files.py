"""Any job survives being written and read."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.workload.parallelism import AXES
from placement.workload.request import Collective, Request
from scheduler.core import JobSpec
from scheduler.core.model.events import JobSubmitted
from scheduler.eventlog.codec import decode, encode
from scheduler.files.job import job_from_mapping
from scheduler.v1 import job_pb2
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import job_to_mapping
from tests.property.test_volumes import requests

sizes = st.integers(1, 64)


jobs = st.fixed_dictionaries(
    {"parallelism": st.fixed_dictionaries({}, optional=dict.fromkeys(AXES, sizes))},
    optional={
        "name": st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1),
        "traffic": st.fixed_dictionaries({}, optional=dict.fromkeys(AXES, st.integers(0, 10**15))),
        "collectives": st.fixed_dictionaries(
            {}, optional={axis: st.sampled_from(list(Collective)) for axis in ("tp", "cp", "dp")}
        ),
        "spares": st.just("auto")
        | st.integers(0, 99)
        | st.floats(0, 100).map(lambda share: f"{share!r}%"),
        "spread_alpha": st.floats(0, 1),
        "cut_slack": st.floats(0, 1),
        "priority": st.integers(-1000, 1000),
        "time_limit_s": st.integers(1, 10**6),
        "compute_time_s": st.floats(1e-9, 10**6),
    },
)


def check_returns(spec: JobSpec) -> None:
    """From its file, the wire and the log."""
    assert job_from_mapping(job_to_mapping(spec)) == spec
    wire = spec_to_proto(spec).SerializeToString()
    assert spec_from_proto(job_pb2.JobSpec.FromString(wire)) == spec
    kind, body = encode(JobSubmitted(1, "uid", spec))
    again: Any = decode(kind, body)
    assert again.spec == spec
    assert encode(again) == (kind, body)


@given(jobs)
def test_a_job_survives_file_wire_and_log(mapping: dict[str, Any]) -> None:
    check_returns(job_from_mapping(mapping))


@settings(max_examples=50)
@given(requests(), st.integers(0, 10**6))
def test_a_job_with_a_model_survives_file_wire_and_log(req: Request, memory_gb: int) -> None:
    how = replace(req.training, gpu_memory_gb=memory_gb)
    check_returns(JobSpec("a", replace(req, training=how)))
