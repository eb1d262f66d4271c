"""Job files: what they mean, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from placement.workload.parallelism import Parallelism
from placement.workload.replicas import sized
from placement.workload.request import AUTO, Batch, Collective, Objective, SpareRule
from placement.workload.traffic import axis_traffic
from scheduler.files.inputs import InputError, load_job
from scheduler.files.job import job_from_mapping, job_to_mapping
from tests.build import LLAMA3

EXAMPLES = Path(__file__).parents[2] / "examples"


def refusal(mapping: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InputError) as caught:
        job_from_mapping(mapping)
    return caught.value.problems


def refused_file(path: Path, text: str) -> list[str]:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_job(str(path))
    return [line.removeprefix(f"{path.parent}/") for line in str(caught.value).splitlines()]


# --- job files -----------------------------------------------------------------


def test_parallelism_and_traffic_are_a_job() -> None:
    spec = job_from_mapping({"parallelism": {"tp": 8, "dp": 4}, "traffic": {"dp": 400e9}})
    assert spec.request.parallelism == Parallelism(tp=8, dp=4)
    assert spec.request.traffic == (("dp", 400_000_000_000),)
    assert spec.request.spares is AUTO
    assert spec.priority == 0


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "\U0001f600", "x" * 5000, "-x", "a b"])
def test_a_name_that_no_server_takes_is_refused(name: str) -> None:
    ((field, message),) = refusal({"name": name, "parallelism": {"dp": 2}})
    assert field == "name"
    assert message.startswith("must be 1 to 128 letters, digits, '-', '_' or '.'")
    assert len(message) < 200
    assert message.isprintable()


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


def test_a_nameless_job_is_called_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "nightly.yaml"
    path.write_text("parallelism: {dp: 2}\n")
    assert load_job(str(path)).name == "nightly"


@pytest.mark.parametrize(
    ("spares", "rule"),
    [
        ("auto", AUTO),
        (0, SpareRule(hosts=0)),
        (5, SpareRule(hosts=5)),
        ("5", SpareRule(hosts=5)),
        ("2%", SpareRule(share=0.02)),
        ("0.5%", SpareRule(share=0.005)),
    ],
)
def test_spares(spares: object, rule: SpareRule) -> None:
    assert job_from_mapping({"parallelism": {}, "spares": spares}).request.spares == rule


@pytest.mark.parametrize("spares", [-1, 1.5, "few", "-2%", "101%", "nan%", "%", True, None, [], ""])
def test_spares_that_mean_nothing(spares: object) -> None:
    [(field, message)] = refusal({"parallelism": {}, "spares": spares})
    assert field == "spares"
    assert message.startswith("must be auto, a whole number of hosts or a share")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"labels": {"a": {"b": "c"}}}, ("labels.a", "must be a text of at most 256 characters")),
        ({"priority": True}, ("priority", "must be a whole number, not true")),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_file(
    keys: dict[str, object], told: tuple[str, str]
) -> None:
    assert refusal({"parallelism": {}, **keys}) == (told,)


@pytest.mark.parametrize("number", [1.5, -1, "3", "text", True, [], float("nan"), 1e300])
def test_traffic_is_whole_bytes(number: object) -> None:
    [(field, message)] = refusal({"parallelism": {"dp": 2}, "traffic": {"dp": number}})
    assert field == "traffic.dp"
    assert message.startswith("must ")


@pytest.mark.parametrize("number", [0, 3, 3.0, 400e9, 10**15])
def test_traffic_however_it_is_written(number: float) -> None:
    spec = job_from_mapping({"parallelism": {"dp": 2}, "traffic": {"dp": number}})
    assert axis_traffic(spec.request)[0].edge_bytes == number


@pytest.mark.parametrize(
    ("mapping", "field", "message"),
    [
        ({}, "parallelism", "is required"),
        ({"parallelism": {"pp": 2, "order": "tp-dp"}}, "parallelism.order", "leaves out pp"),
        ({"parallelism": {"order": "tp-tp"}}, "parallelism.order", "names an axis twice"),
        ({"parallelism": {"dp": 2**31}}, "parallelism.dp", "must be at most"),
        ({"parallelism": {}, "collectives": {"pp": "hierarchical"}}, "collectives.pp", "chain"),
    ],
)
def test_a_fault_and_its_field(mapping: dict[str, Any], field: str, message: str) -> None:
    [(found, said)] = refusal(mapping)
    assert found == field
    assert message in said


def test_a_batch_that_does_not_divide_over_the_replicas(tmp_path: Path) -> None:
    model = job_to_mapping(load_job(str(EXAMPLES / "small.yaml")))["model"]
    job = {"parallelism": {"dp": 3}, "model": model}
    assert refusal(job)[0][0] == "batch"
    assert refusal({**job, "batch": {"global_sequences": 4}})[0] == (
        "batch.global_sequences",
        "4 sequences do not divide over dp 3 in micro-batches of 1",
    )


def test_file_and_line_in_file_order(tmp_path: Path) -> None:
    text = "name: x\ntraffic:\n  dp: -3\nparallelism:\n  dp: no\n  tpp: 8\n"
    assert refused_file(tmp_path / "job.yaml", text) == [
        "job.yaml:3: traffic.dp: must not be negative, is -3",
        "job.yaml:5: parallelism.dp: must be a whole number, not 'no'",
        "job.yaml:6: parallelism.tpp: unknown axis 'tpp', did you mean tp?"
        " known are tp, cp, ep, pp, dp, order",
    ]


def test_many_faults_are_cut_short_in_the_message_alone() -> None:
    with pytest.raises(InputError) as caught:
        job_from_mapping({"parallelism": {}, **{f"key{i}": i for i in range(30)}})
    assert len(caught.value.problems) == 30
    assert str(caught.value).endswith("... and 10 more")


def test_a_message_cannot_drive_the_terminal() -> None:
    with pytest.raises(InputError) as caught:
        job_from_mapping({"parallelism": {}, "\x1b[31m\nred": 1})
    assert str(caught.value).isprintable()


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


@pytest.mark.parametrize(
    ("key", "value", "field", "what"),
    [
        ("exlusive", "rack", "constraints.exlusive", "did you mean exclusive?"),
        ("hosts", ["h100"], "constraints.hosts", "must map labels to values"),
        ("hosts", {"gpu": 100}, "constraints.hosts", "must be a non-empty text"),
        ("avoid", ["b"], "constraints.avoid", "must map tiers to job names"),
        ("avoid", {"zone": "b"}, "constraints.avoid", "must be a list of job names"),
        ("within", {"sp": "rack"}, "constraints.within.sp", "unknown axis"),
    ],
)
def test_a_wrong_constraint_names_its_field(key: str, value: Any, field: str, what: str) -> None:
    ((found, message),) = refusal({"parallelism": {"dp": 1}, "constraints": {key: value}})
    assert found == field
    assert what in message
