"""Any job survives being written and read; any mapping is a job or is refused."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from placement.workload.parallelism import AXES
from placement.workload.request import Collective
from scheduler.files.job import job_from_mapping, job_to_mapping
from scheduler.wire.specs import spec_from_proto, spec_to_proto

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


@given(jobs)
def test_a_job_survives_its_mapping(mapping: dict[str, Any]) -> None:
    spec = job_from_mapping(mapping)
    assert job_from_mapping(job_to_mapping(spec)) == spec
    assert spec_from_proto(spec_to_proto(spec)) == spec
