"""`muster links` on a terminal: counts, proofs, failures, messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler import cli

RACKS = """\
name: mini
gpus_per_host: 2
tiers:
  - {name: zone, count: 3, oversubscription: 2}
  - {name: rack, count: 4}
  - {name: host, count: 2}
"""


def muster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    monkeypatch.setattr("sys.argv", ["muster", "links", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.fixture
def mini(tmp_path: Path) -> str:
    path = tmp_path / "mini.yaml"
    path.write_text(RACKS)
    return str(path)


def as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> Any:
    code, out, err = muster(capsys, monkeypatch, *arguments, "--format", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_counts_and_proofs(
    mini: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = as_json(capsys, monkeypatch, "--fabric", mini)
    assert [(row["switch"], row["switches"], row["cables_up"]) for row in found["layers"]] == [
        ("rtsw", 12, 48),
        ("ctsw", 12, 24),
        ("atsw", 2, 0),
    ]
    ratios = {(row["what"], row["tier"]): row["oversubscription"] for row in found["bandwidth"]}
    assert ratios == {
        ("out of", "rack"): 1,
        ("inside", "zone"): 1,
        ("out of", "zone"): 2,
        ("inside", "fabric"): 2,
    }


def test_the_page_has_a_line_for_each(
    mini: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = muster(capsys, monkeypatch, "--fabric", mini)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "ctsw zone 3 12 4 2 24" in lines
    assert "out of z0 6.4 Tbit/s 3.2 Tbit/s 2:1 2:1 even spreading reaches the cut" in lines


def test_failures_are_missing(
    mini: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    down = ("--failed", "atsw1", "--failed", "z0-ctsw[0-1]/atsw0")
    found = as_json(capsys, monkeypatch, "--fabric", mini, *down)
    assert found["failed"] == ["atsw1", "z0-ctsw[0-1]/atsw0"]
    assert found["layers"][1]["ports_up"] == [0, 1]
    out = next(
        row for row in found["bandwidth"] if (row["what"], row["tier"]) == ("out of", "zone")
    )
    assert (out["domain"], out["bytes_per_s"]) == ("z0", 2 * 5e10)


@pytest.mark.slow
def test_striping_counts_cores(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = muster(capsys, monkeypatch, "--fabric", "ib-24k", "--striping", "minimal")
    assert "1,920 switches" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--failed", "z9-ctsw0"], "failed: mini has no switch 'z9-ctsw0'"),
        (["--failed", "z0-ctsw0/atsw0/7"], "failed: mini has no cable"),
    ],
)
def test_what_is_not_there_cannot_fail(
    mini: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    code, out, err = muster(capsys, monkeypatch, "--fabric", mini, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
