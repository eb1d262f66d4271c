"""Messages and values say the same thing."""

from dataclasses import replace

import pytest

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
from placement.workload.training import ContextParallel, DataParallel, Recompute, Sync
from scheduler.core import JobSpec
from scheduler.core.policies.affinity import Affinity
from scheduler.files.errors import InputError
from scheduler.v1 import job_pb2, placement_pb2
from scheduler.wire.jobs import answer_to_proto
from scheduler.wire.specs import SpecReader, spec_from_proto, spec_to_proto
from tests.build import fabric, gang, on, request, spec


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8])
def test_what_is_minimised_survives_the_wire(alpha: float) -> None:
    spread = replace(request(dp=4), objective=Objective.SPREAD, spread_alpha=alpha)
    job = JobSpec("a", spread)
    assert spec_from_proto(spec_to_proto(job)) == job


def test_what_is_unset_is_left_to_the_defaults() -> None:
    message = job_pb2.JobSpec(name="a", parallelism=job_pb2.Parallelism(dp=8))
    found = spec_from_proto(message)
    assert found.request == request(dp=8, spares=AUTO)
    assert (found.priority, found.time_limit_s) == (0, None)


def test_a_zero_that_was_sent_is_not_a_default() -> None:
    message = job_pb2.JobSpec(name="a", parallelism=job_pb2.Parallelism(dp=0, pp=0))
    message.time_limit.SetInParent()
    with pytest.raises(InputError) as caught:
        spec_from_proto(message)
    fields = {field for field, _ in caught.value.problems}
    assert fields == {"parallelism.dp", "parallelism.pp", "time_limit"}


def test_numbers_of_a_newer_caller_are_refused() -> None:
    message = spec_to_proto(spec("a"))
    message.objective = placement_pb2.Objective.ValueType(77)
    message.collectives["dp"] = job_pb2.Collective.ValueType(77)
    with pytest.raises(InputError) as caught:
        spec_from_proto(message)
    assert {field for field, _ in caught.value.problems} == {"objective", "collectives.dp"}


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


@pytest.mark.parametrize("kept", [0, 1, 8])
def test_what_is_remembered_and_what_is_not_read_the_same(kept: int) -> None:
    reader = SpecReader(kept, most_bytes=1_000)
    labels = tuple((f"key-{n:02}", "x" * 200) for n in range(40))
    jobs = [JobSpec(name, request(dp=4), labels=labels) for name in ("a", "b")]
    jobs += [JobSpec("c", request(dp=dp)) for dp in (1, 2, 1, 2)]
    assert [reader.read(spec_to_proto(job)) for job in jobs] == jobs


def test_a_wrong_specification_is_refused_as_often_as_it_comes() -> None:
    reader, message = SpecReader(), spec_to_proto(spec("a", 4))
    message.parallelism.dp = 0
    for _ in range(2):
        with pytest.raises(InputError, match=r"parallelism\.dp"):
            reader.read(message)
    assert message.name == "a"


FABRIC = fabric()
ANSWERS: list[tuple[Answer, placement_pb2.Outcome.ValueType]] = [
    (on(FABRIC, gang(2), 0, 1, spares=[2]), placement_pb2.OUTCOME_PLACED),
    (Insufficient(4, 3, (("z0", 3),), "needs 4"), placement_pb2.OUTCOME_INSUFFICIENT),
    (Infeasible("too large"), placement_pb2.OUTCOME_INFEASIBLE),
    (Undecided("gave up"), placement_pb2.OUTCOME_UNDECIDED),
]


@pytest.mark.parametrize(("answer", "outcome"), ANSWERS)
def test_each_of_the_four_answers_has_its_outcome(
    answer: Answer, outcome: placement_pb2.Outcome.ValueType
) -> None:
    message = answer_to_proto(FABRIC, request(), answer)
    assert message.outcome == outcome
    assert message.HasField("placement") == (outcome == placement_pb2.OUTCOME_PLACED)
    assert bool(message.reason) == (outcome != placement_pb2.OUTCOME_PLACED)


def test_a_placement_names_its_hosts_in_block_order() -> None:
    placement = answer_to_proto(FABRIC, request(), on(FABRIC, gang(2), 5, 0, spares=[2])).placement
    assert list(placement.hosts) == ["z1-r0-h1", "z0-r0-h0"]
    assert list(placement.spares) == ["z0-r1-h0"]
    assert [(c.tier, c.bytes_per_step) for c in placement.cuts] == [("zone", 160), ("rack", 160)]


def test_constraints_survive_the_wire() -> None:
    where = Constraints(2, "rack", (("disk", "nvme"), ("gpu", "h100")))
    avoid = (("zone", ("serve-*", "b")), ("rack", ("c",)))
    affinity = Affinity("rack", avoid, "data")
    job = JobSpec("a", replace(request(dp=4), where=where), affinity=affinity)
    sent = spec_to_proto(job).SerializeToString()
    assert spec_from_proto(job_pb2.JobSpec.FromString(sent)) == job


def test_a_negative_number_of_zones_is_refused() -> None:
    message = spec_to_proto(spec("a", 4))
    message.constraints.max_zones = -1
    with pytest.raises(InputError, match=r"constraints\.max_zones: must be at least 1"):
        spec_from_proto(message)


def test_durations_are_whole_seconds_under_the_name_of_their_field() -> None:
    message = spec_to_proto(spec("a"))
    message.time_limit.FromMilliseconds(1_500)
    message.checkpoint.interval.FromNanoseconds(1)
    with pytest.raises(InputError) as caught:
        spec_from_proto(message)
    problems = dict(caught.value.problems)
    assert problems.keys() == {"checkpoint.interval", "time_limit"}
    assert "must be a whole number" in problems["time_limit"]
    message.time_limit.FromSeconds(90)
    message.checkpoint.interval.FromSeconds(600)
    found = spec_from_proto(message)
    assert (found.time_limit_s, found.checkpoint.interval_s) == (90, 600)
    assert spec_from_proto(spec_to_proto(found)) == found
