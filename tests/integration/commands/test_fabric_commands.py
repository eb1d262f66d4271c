"""`muster fabric`, which imports and shows one, and `muster links`, which shows its switches."""

import json
import time
from pathlib import Path

import pytest

from placement.fabric.reader import from_spec
from scheduler.files.fabrics.summary import summary
from tests.build import fabric, fabric_spec, two_tiers
from tests.commands import Muster, Result


@pytest.fixture
def fabric_command(muster: Muster) -> Muster:
    return lambda *words: muster("fabric", *words)


@pytest.mark.slow
def test_errors_name_the_place(fabric_command: Muster) -> None:
    Path("t.conf").write_text("SwitchName=a Nodes=b[\n")
    slurm = ("import", "t.conf", "--from", "slurm")
    said = "t.conf:1: nodes: unbalanced brackets in 'b['\n"
    assert fabric_command(*slurm) == Result(2, "", said)
    gone = fabric_command("import", "gone", "--from", "slurm")
    assert gone == Result(2, "", "gone: no such file\n")
    assert fabric_command(*slurm, "--hosts", "[").code == 2
    assert fabric_command("import", "t.conf", "--from", "toml").code == 2
    for option in ("--topology", "--label-keys"):
        done = fabric_command(*slurm, option, "x")
        assert (done.code, done.out) == (2, "")
        assert option in done.err


def test_show(fabric_command: Muster) -> None:
    done = fabric_command("show", "--fabric", "roce-24k")
    assert done.code == 0
    assert done.out == (
        "roce-24k: roce, 3,072 hosts, 24,576 GPUs, H100"
        " (8 a host; each 400 Gbit/s out of the host, 3.6 Tbit/s inside)\n\n"
        "tier  domains  hosts each   uplink each  oversubscribed  names\n"
        "zone        8         384  175.5 Tbit/s             7:1  z0 .. z7\n"
        "rack    1,536           2    6.4 Tbit/s             1:1  z0-r000 .. z7-r191\n"
        "host    3,072                3.2 Tbit/s                  z0-r000-h0 .. z7-r191-h1\n"
    )
    body = fabric_command("show", "--fabric", "roce-24k", "--format", "json").json
    zone = body["tiers"][0]
    assert (body["hosts"], body["gpus"]) == (3072, 24576)
    assert zone["uplink_gbps"][0] * zone["oversubscription"][0] == pytest.approx(384 * 8 * 400)


def test_show_lists_the_stores(fabric_command: Muster, tmp_path: Path) -> None:
    flash = {"name": "flash", "write_gb_per_s": 60, "read_gb_per_s": 70, "hold_jobs": True}
    flash |= {"by_tier": {"zone": {"write_gb_per_s": 8, "read_gb_per_s": 20}}}
    flash |= {"readers": {"hosts": 60, "gb_per_s": 1.5}}
    archive = {"name": "archive", "write_gb_per_s": 2.5, "capacity_tb": 240_000}
    path = tmp_path / "stores.json"
    path.write_text(json.dumps(fabric_spec() | {"storage": [flash, archive]}))
    shown = ("show", "--fabric", str(path))
    assert fabric_command(*shown).out.endswith(
        "\n\n"
        "store           writes          reads       holds\n"
        "flash          60 GB/s        70 GB/s\n"
        "  each zone     8 GB/s        20 GB/s\n"
        "  60 readers            1.5 GB/s each\n"
        "archive       2.5 GB/s                 240,000 TB\n\n"
        "note: jobs wait whose datasets exceed what is left of 70 GB/s of store flash or of 20 GB/s"
        " of each zone\n"
    )
    stores = fabric_command(*shown, "--format", "json").json["stores"]
    assert stores[0] == flash | {"capacity_tb": None}


def test_what_looks_odd_is_said() -> None:
    bare = {"name": "b", "gpus_per_host": 8, "tiers": [{"name": "host", "count": 2}]}
    narrow = fabric_spec()
    narrow["tiers"][1]["oversubscription"] = 8
    odd = {
        "all hosts are in one zone": fabric(zones=1),
        "every zone is a single rack": two_tiers([2], [3]),
        "no tier above the hosts": from_spec(bare),
        "z0: its racks together have less uplink than the zone": from_spec(narrow),
    }
    for says, found in odd.items():
        assert [note for note in summary(found)["notes"] if note.startswith(says)]
    assert summary(fabric())["notes"] == []


@pytest.mark.slow
def test_98_thousand_hosts_are_imported_in_seconds(fabric_command: Muster) -> None:
    rows = ["SwitchName=core Switches=z[00-31]"]
    for zone in range(32):
        rows.append(f"SwitchName=z{zone:02d} Switches=z{zone:02d}r[0000-1535]")
        racks = [f"z{zone:02d}r{rack:04d}" for rack in range(1536)]
        rows += [f"SwitchName={rack} Nodes={rack}n[0-1]" for rack in racks]
    Path("t.conf").write_text("\n".join(rows))
    begin = time.perf_counter()
    done = fabric_command("import", "t.conf", "--from", "slurm", "-o", "f.yaml")
    assert done.code == 0
    assert time.perf_counter() - begin < 60
    assert "32 x zone, 49,152 x rack, 98,304 hosts" in done.err


# --- `muster links` ----------------------------------------------------------------------------


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
    lines = [" ".join(line.split()) for line in links().out.splitlines()]
    assert "ctsw zone 3 12 4 2 24" in lines
    assert "out of z0 6.4 Tbit/s 3.2 Tbit/s 2:1 2:1" in lines


def test_failures_are_missing(links: Muster) -> None:
    down = ("--failed", "atsw1", "--failed", "z0-ctsw[0-1]/atsw0")
    found = links(*down, "--format", "json").json
    assert found["failed"] == ["atsw1", "z0-ctsw[0-1]/atsw0"]
    assert found["layers"][1]["ports_up"] == [0, 1]
    out = next(
        row for row in found["bandwidth"] if (row["what"], row["tier"]) == ("out of", "zone")
    )
    assert (out["domain"], out["bytes_per_s"]) == ("z0", 2 * 5e10)


def test_what_is_not_there_cannot_fail(links: Muster) -> None:
    for name, kind in (("z9-ctsw0", "switch 'z9-ctsw0'"), ("z0-ctsw0/atsw0/7", "cable")):
        done = links("--failed", name)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"failed: mini has no {kind}")
