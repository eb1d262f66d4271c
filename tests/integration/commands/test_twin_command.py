"""`muster twin` as its user calls it, on a backup of a small cluster."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from simulator.cli import twin as twin_command
from simulator.twin.answer import sentence
from tests.commands import Muster, Result
from tests.twins import backup

SHORT = ("--from", "lab.db", "--horizon", "3d", "--seeds", "2", "--processes", "1")
PRICES = "currency: EUR\ngpu_hour: 2\nhost_month: 300\nuplink_gbps_month: 1\nrepair: 500\n"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "lab.db"
    backup(path)
    return path


@pytest.fixture
def twin(muster: Muster, lab: Path, tmp_path: Path) -> Muster:
    shutil.copy(lab, tmp_path / "lab.db")
    (tmp_path / "prices.yaml").write_text(PRICES)
    return muster


def test_changes_beside_the_cluster_as_it_is(twin: Muster, tmp_path: Path) -> None:
    asked = ("--change", "spares 2 a zone", "--change", "policy fifo", "--prices", "prices.yaml")
    result = twin("twin", *SHORT, *asked, "--json", "a.json", "--page", "a.html")
    assert (result.code, result.err) == (0, "")
    first = result.out.splitlines()[0]
    assert first.startswith("With spares 2 a zone, policy fifo, the cluster does ")
    assert "An effective GPU-hour costs" in first
    assert "note: fitted from the log: jobs: " in result.out
    answer = json.loads((tmp_path / "a.json").read_text())
    assert [each["name"] for each in answer["scenarios"]] == [
        "as it is",
        "spares 2 a zone, policy fifo",
    ]
    base, changed = answer["scenarios"]
    for run, other in zip(base["runs"], changed["runs"], strict=True):
        assert (run["submitted"], run["host_failures"]) == (
            other["submitted"],
            other["host_failures"],
        )
        assert run["log_sha256"] != other["log_sha256"]
        assert run["spare_gpu_h"] == 0 < other["spare_gpu_h"]
        gpu_h = 16 * 8 * 72
        assert run["all_gpu_h"] == pytest.approx(gpu_h)
        assert 0 < run["effective_gpu_h"] <= run["held_gpu_h"] <= gpu_h
        assert run["money"]["gpus"] == pytest.approx(2 * gpu_h)
    more = changed["differences"]["spare_gpu_h"]
    assert more["mean"] == pytest.approx(changed["figures"]["spare_gpu_h"]["mean"])
    page = (tmp_path / "a.html").read_text()
    assert first in page
    assert page.index(first) < page.index("<table>")
    assert "<svg" in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)


def test_each_change_by_itself(twin: Muster) -> None:
    asked = ("--change", "policy fifo", "--change", "drain z0 at +1d for 8h", "--each")
    found: Any = twin("twin", *SHORT, *asked, "--format", "json").json
    names = [each["name"] for each in found["scenarios"]]
    assert names == [
        "as it is",
        "policy fifo",
        "drain z0 at +1d for 8h",
    ]
    out = [each["figures"]["out_gpu_h"]["mean"] for each in found["scenarios"]]
    assert out[2] - out[0] == pytest.approx(8 * 8 * 8, rel=0.05)


def test_uplinks_tell_with_a_time_model(twin: Muster) -> None:
    asked = ("--change", "oversubscription 1", "--times", "default", "--prices", "prices.yaml")
    found: Any = twin("twin", *SHORT, *asked, "--format", "json").json
    base, wide = found["scenarios"]
    assert wide["money"]["uplinks"]["mean"] == pytest.approx(7 * base["money"]["uplinks"]["mean"])
    assert found["times"].startswith("default")


def test_the_server_file_says_how_it_schedules(twin: Muster, tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text("policy: fifo\n")
    found: Any = twin("twin", *SHORT, "--config", "serve.yaml", "--format", "json").json
    assert found["policy"] == "fifo"


def test_numbers_of_spares_side_by_side(twin: Muster) -> None:
    asked = [part for n in range(3) for part in ("--change", f"spares {n} a zone")]
    found: Any = twin("twin", *SHORT, "--each", *asked, "--format", "json").json
    spares = [each["figures"]["spare_gpu_h"]["mean"] for each in found["scenarios"]]
    assert spares[0] == spares[1] == 0 < spares[2] < spares[3]
    said = sentence(found)
    assert " a zone, the best of 3 by effective GPU-hours, the cluster does " in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "none.db"), "--from: "),
        (("--horizon", "soon"), "--horizon: must be a duration such as 90m, 4h or 1d12h"),
        (("--horizon", "9000d"), "--horizon: must be up to 3,650d, not 9000d"),
        (("--horizon", "999d"), "--horizon: 20,"),
        (("--change", "more hosts"), "--change: must be like one of these, not 'more hosts'"),
        (("--prices", "none.yaml"), "none.yaml"),
        (("--json", "nowhere/a.json"), "nowhere/a.json: there is no folder nowhere"),
        (("--config", "mini.yaml"), "mini.yaml:1: "),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    twin: Muster, words: tuple[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin_command, "MOST_JOBS", 9_000)
    result: Result = twin("twin", *SHORT, *words)
    assert result.code == 2
    assert said in result.err
