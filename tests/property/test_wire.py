"""Any specification survives the wire."""

from hypothesis import given
from hypothesis import strategies as st

from placement.workload.request import (
    AUTO,
    SpareRule,
)
from scheduler.core import JobSpec
from scheduler.files.job import parse_spares
from scheduler.v1 import job_pb2
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import request

SPARES = st.one_of(
    st.just(AUTO),
    st.integers(0, 1_000).map(lambda n: SpareRule(hosts=n)),
    st.integers(0, 1_000).map(lambda n: parse_spares(f"{n / 10}%")),
)


@given(
    spares=SPARES,
    priority=st.integers(-(2**31) + 1, 2**31 - 1),
    limit_s=st.none() | st.integers(1, 2**31 - 1),
    dp_bytes=st.integers(0, 10**15),
    pp=st.sampled_from([1, 2, 4]),
)
def test_a_specification_survives_the_wire(
    spares: SpareRule, priority: int, limit_s: int | None, dp_bytes: int, pp: int
) -> None:
    traffic = {"tp": 1_000, "pp": 3, "dp": dp_bytes}
    job = JobSpec("a", request(tp=8, pp=pp, traffic=traffic, spares=spares), priority, limit_s)
    sent = spec_to_proto(job).SerializeToString()
    assert spec_from_proto(job_pb2.JobSpec.FromString(sent)) == job
