"""`muster links` on a terminal: counts, proofs, failures, messages."""

from pathlib import Path

import pytest

from tests.commands import Muster, Result

RACKS = """\
name: mini
gpus_per_host: 2
tiers:
  - {name: zone, count: 3, oversubscription: 2}
  - {name: rack, count: 4}
  - {name: host, count: 2}
"""


@pytest.fixture
def links(muster: Muster) -> Muster:
    """`muster links` of a small fabric."""
    Path("mini.yaml").write_text(RACKS)

    def run(*arguments: str, fabric: str = "mini.yaml") -> Result:
        return muster("links", "--fabric", fabric, *arguments)

    return run


def test_counts_and_proofs(links: Muster) -> None:
    found = links("--format", "json").json
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


def test_the_page_has_a_line_for_each(links: Muster) -> None:
    lines = [" ".join(line.split()) for line in links().out.splitlines()]
    assert "ctsw zone 3 12 4 2 24" in lines
    assert "out of z0 6.4 Tbit/s 3.2 Tbit/s 2:1 2:1 even spreading reaches the cut" in lines


def test_failures_are_missing(links: Muster) -> None:
    down = ("--failed", "atsw1", "--failed", "z0-ctsw[0-1]/atsw0")
    found = links(*down, "--format", "json").json
    assert found["failed"] == ["atsw1", "z0-ctsw[0-1]/atsw0"]
    assert found["layers"][1]["ports_up"] == [0, 1]
    out = next(
        row for row in found["bandwidth"] if (row["what"], row["tier"]) == ("out of", "zone")
    )
    assert (out["domain"], out["bytes_per_s"]) == ("z0", 2 * 5e10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--failed", "z9-ctsw0"], "failed: mini has no switch 'z9-ctsw0'"),
        (["--failed", "z0-ctsw0/atsw0/7"], "failed: mini has no cable"),
    ],
)
def test_what_is_not_there_cannot_fail(links: Muster, arguments: list[str], message: str) -> None:
    done = links(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)
