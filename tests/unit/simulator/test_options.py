"""Runs as plain values: what they mean, and when two are the same."""

from pathlib import Path

import pytest

from simulator import inputs
from simulator.experiment import experiment_of, fabric_of
from simulator.experiment_file import load_experiment_file
from simulator.inputs import digest
from simulator.options import BY_KEY, DEFAULTS, ChoiceKind, Value, checked, conflicts
from simulator.placers import PlacementStrategy
from simulator.traces.shapes import ShapeRule
from tests.refusals import refusal
from tests.studies import CASE, write


@pytest.fixture
def point(tmp_path: Path) -> dict[str, Value]:
    return load_experiment_file(str(write(tmp_path))).points[0]


def test_a_case_has_what_the_options_say(point: dict[str, Value]) -> None:
    options = {**point, "checkpoint_s": 77, "limit": 5, "assumed_limit_h": 2.0}
    experiment = experiment_of(options)

    assert (experiment.options.policy, experiment.seed) == ("easy", 3)
    assert experiment.source.limit == 5
    assert (experiment.costs.checkpoint_s, experiment.options.assumed_limit_s) == (77, 7200)
    assert experiment.fabric.name == "small"


def test_oversubscription_narrows_the_outermost_uplinks(point: dict[str, Value]) -> None:
    four, eight = fabric_of(point), fabric_of({**point, "oversubscription": 8.0})

    assert eight.tiers[0].uplink_bytes_per_s[0] * 2 == four.tiers[0].uplink_bytes_per_s[0]
    assert eight.hosts == four.hosts
    assert eight.name == "small-8to1"


def test_every_input_and_the_code_are_in_the_digest(
    point: dict[str, Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(point)
    for changed in (
        *({"seed": 4}, {"spares": "1"}, {"policy": "fifo"}, {"oversubscription": 2.0}),
        *({"limit": 9}, {"failure_scale": 2.0}, {"failures": "poisson:rate=3000,repair_h=2"}),
    ):
        assert digest({**point, **changed}) != before, changed
    monkeypatch.setattr(inputs, "code_digest", lambda: "other")
    assert digest(point) != before


def test_the_content_of_files_is_in_the_digest_their_names_are_not(tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        case = CASE.replace("poisson:rate=3000,repair_h=1", "out.csv")
        (tmp_path / name / "out.csv").write_text("time_s,host,state,cause\n")
        digests.append(digest(load_experiment_file(str(write(tmp_path / name, case))).points[0]))
    path = tmp_path / "b" / "case.yaml"
    changed = []
    for name in ("t.swf", "out.csv", "m.yaml"):
        file = tmp_path / "b" / name
        text = file.read_text()
        file.write_text(text.replace("cluster", "") + ("labels: {}\n" if "m." in name else "\n"))
        changed.append(digest(load_experiment_file(str(path)).points[0]))
        file.write_text(text)

    assert digests[0] == digests[1]
    assert len({digests[0], *changed}) == 4


def test_choices_are_those_of_the_code() -> None:
    """They are spelt out, because the enums are too heavy to import for a help text."""
    for key, names in (("placement", PlacementStrategy), ("attach", ShapeRule)):
        kind = BY_KEY[key].kind
        assert isinstance(kind, ChoiceKind)
        assert set(kind.names) == {str(name) for name in names}


def test_every_default_is_a_good_value() -> None:
    assert {key: checked(key, value) for key, value in DEFAULTS.items()} == DEFAULTS


@pytest.mark.parametrize(
    ("options", "key", "told"),
    [
        ({"trace_format": "csv"}, "columns", "is needed with the format csv: submit="),
        ({"columns": "submit=1"}, "columns", "has an effect only with the formats csv and"),
        ({"times": "llama3", "detect_s": 9}, "detect_s", "has no effect with --times"),
        ({"failures_repeat": True}, "failures_repeat", "has no effect without failures"),
    ],
)
def test_options_without_an_effect_are_named(
    options: dict[str, Value], key: str, told: str
) -> None:
    ((found, message),) = conflicts({**DEFAULTS, "trace_format": "swf", **options})
    assert (found, message.startswith(told)) == (key, True)


# --- experiment files ----------------------------------------------------------------


def faults(folder: Path, case: str) -> list[str]:
    found = refusal(load_experiment_file, str(write(folder, case)))
    return found.replace(f"{folder}/", "").splitlines()


def test_every_combination_is_a_point(tmp_path: Path) -> None:
    grid = load_experiment_file(str(write(tmp_path)))

    assert grid.axes == {"spares": ["0", "1"], "policy": ["easy", "fifo"], "seed": [3, 4]}
    assert [(p["spares"], p["policy"], p["seed"]) for p in grid.points[:3]] == [
        ("0", "easy", 3),
        ("0", "easy", 4),
        ("0", "fifo", 3),
    ]
    assert len(grid.points) == 8
    assert all(list(point) == list(DEFAULTS) for point in grid.points)


def test_files_are_sought_beside_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "out.csv").write_text("time_s,host,state,cause\n")
    path = write(
        tmp_path / "cases", CASE.replace("rate=3000,", "rate=1,").replace("=1\n", "=1;out.csv\n")
    )
    monkeypatch.chdir(tmp_path)
    point = load_experiment_file(str(path.relative_to(tmp_path))).points[0]

    assert (point["trace"], point["fabric"]) == ("cases/t.swf", "cases/m.yaml")
    assert point["failures"] == "poisson:rate=1,repair_h=1;cases/out.csv"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("trace: t.swf", "trace: gone.swf", "case.yaml:1: trace: gone.swf: No such file"),
        ("trace: t.swf\n", "trace:\n", "case.yaml:1: trace: must not be empty"),
        ("swf\nfabric", "pbs\nfabric", "case.yaml:2: trace_format: unknown trace format 'pbs'"),
        ("fabric: m.yaml", "fabrik: m.yaml", "case.yaml: fabric: is missing"),
        ("repair_h=1", "repairs=1", "case.yaml:4: failures: 'repairs=1' is not one of"),
        ("[0, 1]", "[0, two]", "case.yaml:6: grid.spares.1: must be auto, a whole number"),
        ("[0, 1]", "[0, 0]", "case.yaml:6: grid.spares.1: 0 is given twice"),
        ("[0, 1]", "3", "case.yaml:6: grid.spares: must be a list of at least one value"),
        ("{from: 3, count: 2}", "{from: 3}", "case.yaml:8: grid.seed: a range has whole numbers"),
        ("count: 2", "to: 2", "case.yaml:8: grid.seed.to: unknown key; a range has from,"),
        ("count: 2", "count: 0", "case.yaml:8: grid.seed: count must be from 1"),
        ("seed", "sede", "case.yaml:8: grid.sede: unknown key; did you mean seed?"),
        ("grid", "seed: 1\ngrid", "case.yaml:5: seed: is given twice, here and in grid"),
        ("grid:", "spare: 1\ngrid:", "case.yaml:5: spare: unknown key; did you mean spares?"),
        ("count: 2", "count: 26000", "case.yaml:5: grid: makes 104,000 points, more than"),
        ("failures: p", "limit: [1]\nfailures: p", "case.yaml:4: limit: must be one value; lists"),
        (
            "grid:",
            "times: llama3\ncheckpoint_s: 60\ngrid:",
            "case.yaml:6: checkpoint_s: has no eff",
        ),
        ("grid:", "times: gone\ngrid:", "case.yaml:5: times: "),
        ("grid:", "until_h: 0\ngrid:", "case.yaml:5: until_h: must be a number above 0 and up to"),
        ("failures: p", "strict: yes\nfailures: p", "case.yaml:4: strict: must be true or false"),
    ],
)
def test_faults(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in CASE
    (found, *_) = faults(tmp_path, CASE.replace(before, after, 1))

    assert found.startswith(told)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    case = CASE.replace("swf\nfabric", "pbs\nfabric").replace("[0, 1]", "[x, y]")
    assert len(faults(tmp_path, case)) == 3
    told = ["case.yaml: grid: is missing; for a single run use muster replay"]
    assert faults(tmp_path, CASE.partition("grid")[0]) == told


def test_what_is_wrong_inside_a_fabric_is_told_of_the_fabric(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "m.yaml").write_text("name: small\ngpus_per_host: many\n")
    found = refusal(load_experiment_file, str(path))
    assert found.startswith(f"{tmp_path}/m.yaml:2: gpus_per_host: ")
