"""Runs as plain values: what they mean, and when two are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import inputs
from simulator.experiment import experiment_of, fabric_of
from simulator.experiment_file import load_experiment_file
from simulator.inputs import digest
from simulator.options import BY_KEY, DEFAULTS, ChoiceKind, Value, checked
from simulator.placers import PlacementStrategy
from simulator.traces.shapes import ShapeRule
from tests.studies import CASE, write


@pytest.fixture
def point(tmp_path: Path) -> dict[str, Value]:
    return load_experiment_file(str(write(tmp_path))).points[0]


def test_a_case_has_what_the_options_say(point: dict[str, Value]) -> None:
    options = {**point, "checkpoint_s": 77, "limit": 5, "assumed_limit_h": 2.0}
    experiment = experiment_of(options)

    assert (experiment.limits.policy, experiment.seed) == ("easy", 3)
    assert experiment.source.limit == 5
    assert (experiment.costs.checkpoint_s, experiment.limits.assumed_limit_s) == (77, 7200)
    assert experiment.fabric.name == "small"


def test_oversubscription_narrows_the_outermost_uplinks(point: dict[str, Value]) -> None:
    four, eight = fabric_of(point), fabric_of({**point, "oversubscription": 8.0})

    assert eight.tiers[0].uplink_bytes_per_s[0] * 2 == four.tiers[0].uplink_bytes_per_s[0]
    assert eight.hosts == four.hosts
    assert eight.name == "small-8to1"


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 4), ("spares", "1"), ("policy", "fifo"), ("oversubscription", 2.0), ("limit", 9),
     ("failure_scale", 2.0), ("failures", "poisson:rate=3000,repair_h=2")],
)  # fmt: skip
def test_every_input_is_in_the_digest(point: dict[str, Value], key: str, value: Value) -> None:
    assert digest({**point, key: value}) != digest(point)


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


def test_other_code_is_another_input(
    point: dict[str, Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(point)
    monkeypatch.setattr(inputs, "code_digest", lambda: "other")

    assert digest(point) != before


def test_choices_are_those_of_the_code() -> None:
    """They are spelt out, because the enums are too heavy to import for a help text."""
    for key, names in (("placement", PlacementStrategy), ("attach", ShapeRule)):
        kind = BY_KEY[key].kind
        assert isinstance(kind, ChoiceKind)
        assert set(kind.names) == {str(name) for name in names}


def test_every_default_is_a_good_value() -> None:
    assert {key: checked(key, value) for key, value in DEFAULTS.items()} == DEFAULTS
