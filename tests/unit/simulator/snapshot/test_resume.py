"""`muster replay --snapshot` and `--resume` as researchers meet them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from scheduler.files.errors import InputError
from simulator.cli import register
from simulator.snapshot import marks as marks_module
from tests.splits import written

ROW = "{} {} -1 {} {} -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"
FABRIC = """\
name: machine
gpus_per_host: 2
tiers:
  - {name: zone, count: 1}
  - {name: host, count: 4}
"""
BEGIN = ("t.swf", "--trace-format", "swf", "--fabric", "m.yaml")
OFTEN = ("--failures", "poisson:rate=9000,repair_h=0.5", "--seed", "4")
AT = ("--snapshot", "a.snap", "--snapshot-at-h", "1.5")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """40 jobs in four hours; one has no size, and one does not fit."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(FABRIC)
    rows = [(i, i * 360, 900 + 70 * (i % 7), 1 + i % 6) for i in range(40)]
    rows[3], rows[30] = (3, 1080, 60, -1), (30, 10_800, 60, 99)
    (tmp_path / "t.swf").write_text("".join(ROW.format(*row) for row in rows))
    return tmp_path


@pytest.fixture
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages take seconds; one test looks at them."""
    monkeypatch.setattr("simulator.pages.write_run", lambda *_: None)


def replay(*arguments: str) -> Result:
    command = typer.Typer(pretty_exceptions_enable=False)
    command.callback()(lambda: None)
    register(command)
    return CliRunner().invoke(command, ["replay", *arguments])


def good(*arguments: str) -> Result:
    result = replay(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def refusal(*arguments: str) -> str:
    """The message that `muster` prints before it exits with 2."""
    error = replay(*arguments).exception
    assert isinstance(error, InputError), error
    return str(error)


def test_stopped_and_gone_on_with_it_writes_the_same_files_pages_too(folder: Path) -> None:
    good(*BEGIN, *OFTEN, "--report", "whole")
    stopped = good(*BEGIN, *OFTEN, *AT, "--report", "parts")
    told = "muster replay --resume a.snap --report parts --snapshot a.snap"
    assert told in stopped.stderr
    assert not stopped.stdout
    assert not (folder / "parts" / "index.html").exists()

    good("--resume", "a.snap", "--report", "parts")

    whole, parts = written(folder / "whole"), written(folder / "parts")
    assert whole.keys() == parts.keys()
    assert {name for name in whole if whole[name] != parts[name]} == set()
    assert json.loads(whole["totals.json"])["host_failures"] > 3


@pytest.mark.usefixtures("no_pages")
def test_a_report_may_be_asked_for_later(folder: Path) -> None:
    good(*BEGIN, "--report", "whole")
    good(*BEGIN, *AT)
    good("--resume", "a.snap", "--report", "late")

    assert written(folder / "late")["jobs.csv"] == written(folder / "whole")["jobs.csv"]


def test_what_is_left_out_or_refused_is_counted_once_and_told_once() -> None:
    whole = json.loads(good(*BEGIN, "--format", "json").stdout)
    first = good(*BEGIN, *AT)
    rest = good("--resume", "a.snap", "--format", "json")

    found = json.loads(rest.stdout)
    for key in ("skipped_by_reason", "rejected_by_reason", "jobs", "log_sha256"):
        assert found[key] == whole[key], key
    assert "t.swf:4" in first.stderr
    assert "t.swf:4" not in rest.stderr
    assert "t.swf:31" in rest.stderr


def test_the_options_may_be_said_again_and_the_files_may_have_moved(folder: Path) -> None:
    good(*BEGIN, *OFTEN, *AT)
    (folder / "moved").mkdir()
    (folder / "t.swf").rename(folder / "moved" / "t.swf")
    (folder / "m.yaml").rename(folder / "moved" / "m.yaml")
    again = ("moved/t.swf", "--trace-format", "swf", "--fabric", "moved/m.yaml")

    good(*again, *OFTEN, "--resume", "a.snap")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            ("--spares", "1"),
            "--spares: is not given in the snapshot and cannot become 1 on the way",
        ),
        (("--strict",), "--strict: is False in the snapshot and cannot become True"),
        (("--times", "llama3"), "--times: is not given in the snapshot and cannot become llama3"),
        (("--fabric", "roce-24k"), "--fabric: is m.yaml in the snapshot and cannot become"),
        (("--limit", "5"), "--limit: is not given in the snapshot"),
        (("--until-h", "1"), "--until-h: must be after the snapshot, 1.5 h"),
    ],
)
def test_what_would_make_another_past_is_refused(option: tuple[str, ...], told: str) -> None:
    good(*BEGIN, *AT)

    assert told in refusal("--resume", "a.snap", *option)


def test_another_trace_is_refused_whatever_its_name(folder: Path) -> None:
    good(*BEGIN, *AT)
    with (folder / "t.swf").open("a") as file:
        file.write(ROW.format(99, 99_999, 5, 1))

    told = refusal("--resume", "a.snap")
    assert told == "TRACE: t.swf is not what it was when the snapshot was taken"
    (folder / "t.swf").unlink()
    assert refusal("--resume", "a.snap") == "TRACE: t.swf is not there; say where it is now"


@pytest.mark.usefixtures("no_pages")
def test_a_what_if_has_the_same_past_and_says_what_changed(folder: Path) -> None:
    good(*BEGIN, *AT, "--report", "a")
    earlier = (folder / "a" / "events.jsonl").read_bytes()
    result = good(
        *(
            "--resume",
            "a.snap",
            "--policy",
            "fifo",
            "--failures",
            "poisson:rate=30000,repair_h=0.5",
        ),
        *("--until-h", "3", "--report", "b", "--format", "json"),
    )

    totals = json.loads(result.stdout)
    after = (folder / "b" / "events.jsonl").read_bytes()
    assert after.startswith(earlier)
    assert b'"move":"fail"' in after[len(earlier) :]
    assert b'"move":"fail"' not in earlier
    (change,) = totals["changes"]
    assert change["changed"]["policy"] == ["production", "fifo"]
    assert change["changed"]["until_h"] == [None, 3.0]
    assert any("h after the first submit live jobs" in each for each in totals["assumptions"])
    assert any("policy production, failures none" in each for each in totals["assumptions"])


@pytest.mark.usefixtures("no_pages")
def test_a_what_if_can_be_split_too(folder: Path) -> None:
    good(*BEGIN, *OFTEN, *AT)
    changed = ("--resume", "a.snap", "--failures", "poisson:rate=9000,repair_h=0.3")
    good(*changed, "--report", "whole")
    good(*changed, "--snapshot", "b.snap", "--snapshot-at-h", "2.5")
    good("--resume", "b.snap", "--report", "parts")

    assert written(folder / "parts") == written(folder / "whole")


@pytest.mark.usefixtures("no_pages")
def test_the_same_failures_under_another_seed_are_others_from_there_on(folder: Path) -> None:
    good(*BEGIN, *OFTEN, *AT)
    for seed in ("4", "5"):
        good("--resume", "a.snap", "--seed", seed, "--report", seed)

    same, other = written(folder / "4"), written(folder / "5")
    assert same["events.jsonl"] != other["events.jsonl"]
    assert "changes" not in json.loads(same["totals.json"])


def test_a_replay_that_ends_before_says_so(folder: Path) -> None:
    result = good(*BEGIN, "--snapshot", "a.snap", "--snapshot-at-h", "999")

    assert "ended before 999 h" in result.stderr
    assert not (folder / "a.snap").exists()


@pytest.mark.usefixtures("no_pages")
def test_ctrl_c_writes_it_down_and_says_how_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes while the fifth job is read."""
    from simulator.traces import swf

    read = swf._job  # type: ignore[attr-defined]
    seen = 0

    def job(*arguments: object) -> object:
        nonlocal seen
        seen += 1
        if seen == 5:
            signal.raise_signal(signal.SIGINT)
        return read(*arguments)

    good(*BEGIN, "--report", "whole")
    monkeypatch.setattr(swf, "_job", job)
    result = replay(*BEGIN, "--snapshot", "a.snap")
    monkeypatch.setattr(swf, "_job", read)

    assert result.exit_code == 128 + signal.SIGINT
    assert "muster replay --resume a.snap --snapshot a.snap" in result.stderr
    good("--resume", "a.snap", "--report", "parts")
    assert written(folder / "parts") == written(folder / "whole")


def test_other_code_is_told_and_other_fields_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good(*BEGIN, *AT)
    monkeypatch.setattr(marks_module, "code_digest", lambda: "other")
    assert "another version of muster" in good("--resume", "a.snap").stderr

    monkeypatch.setattr(marks_module, "fields_digest", lambda *_: "other")
    told = "was written by another version of muster, which keeps other things of a replay"
    assert told in refusal("--resume", "a.snap")


def test_options_that_would_be_without_effect_are_refused() -> None:
    told = "--snapshot-at-h: needs --snapshot, the file to write to"
    assert refusal(*BEGIN, "--snapshot-at-h", "1") == told
    assert "TRACE: is required, unless --resume" in refusal("--fabric", "m.yaml")
