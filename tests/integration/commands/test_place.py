"""`muster place`: answers, exit codes, messages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from muster.certificate import SEALED, digest
from tests.commands import JOB, Muster

ROOT = Path(__file__).parents[3]


def write(text: str | bytes, name: str = "job.yaml") -> None:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


# --- answers ----------------------------------------------------------------------


def test_the_json_answer(place: Muster) -> None:
    answer = place("--format", "json").json
    assert answer["outcome"] == "placed"
    zone, rack = answer["cut"].values()
    assert list(answer["cut"]) == ["zone", "rack"]
    assert zone["lower_bound_bytes_per_step"] <= zone["bytes_per_step"]
    assert zone["optimal"] is (zone["gap"] == 0)
    assert zone["bytes_per_step"] == sum(zone["by_axis"].values())
    assert (answer["objective"], answer["gap"]) == ("cut", zone["gap"])
    assert zone["lower_bound_over"] == "all layouts"
    assert set(rack) == {"bytes_per_step", "by_axis"}
    assert len(set(answer["hosts"] + answer["spares"])) == 11
    assert set(answer["seconds"]) == {"solve", "total"}
    assert 0 < answer["seconds"]["solve"] < answer["seconds"]["total"]


def test_the_domains_add_up(place: Muster) -> None:
    answer = place("--format", "json").json
    domains = answer["domains"]
    assert sum(d["hosts"] for d in domains) == len(answer["hosts"]) == 10
    assert sum(d["spares"] for d in domains) == len(answer["spares"]) == 1
    assert (
        sum(d["egress_bytes_per_step"] for d in domains) == answer["cut"]["zone"]["bytes_per_step"]
    )
    for domain in domains:
        uplink = 8 * 2 * 400e9 / 8 / 7  # hosts x GPUs x NIC / oversubscription
        assert domain["uplink_seconds"] == pytest.approx(domain["egress_bytes_per_step"] / uplink)
        assert any(host.startswith(domain["name"]) for host in answer["hosts"] + answer["spares"])


def test_a_fabric_without_tiers(place: Muster) -> None:
    write("name: flat\ngpus_per_host: 2\ntiers: [{name: host, count: 16}]\n", "mini.yaml")
    answer = place("--format", "json").json
    assert (answer["cut"], answer["domains"]) == ({}, [])
    assert "placed: job on flat: 10 hosts, 20 ranks, 1 spare" in place().out


def test_the_table(place: Muster) -> None:
    result = place()
    assert result.code == 0
    assert "placed: job on mini: 10 hosts, 20 ranks, 1 spare" in result.out
    assert "lower bound, all layouts" in result.out
    assert "proved optimal" in result.out or "gap " in result.out
    # What is proved first is proved of what is minimised.
    assert "\n\nbetween zones: " in result.out
    write(MODEL)
    by_time, by_cut = place().out, place("--objective", "cut").out
    assert by_time.index("a step: ") < by_time.index("lower bound, all layouts")
    assert by_cut.index("between zones: ") < by_cut.index("lower bound, all layouts")
    assert by_cut.index("lower bound, all layouts") < by_cut.index("a step: ")


def test_formats_agree_on_the_ranks(place: Muster) -> None:
    hosts = place("--format", "json").json["hosts"]
    assert place("--format", "hostfile").out.splitlines() == hosts
    env = place("--format", "env").out.splitlines()
    assert [line.split()[2] for line in env] == [f"HOST={hosts[rank // 2]}" for rank in range(20)]


def test_options_win_over_the_file(place: Muster) -> None:
    for spares, count in (("3", 3), ("20%", 2), ("0", 0)):
        assert len(place("--spares", spares, "--format", "json").json["spares"]) == count
    for objective, is_spread in (("cut", False), ("spread", True)):
        notes = place("--objective", objective, "--format", "json").json["notes"]
        assert any(note.startswith("spread ") for note in notes) is is_spread
    write(JOB + "objective: spread\nspread_alpha: 0.9\n")
    assert "alpha 0.9" in place().out


def test_cuts_of_other_ways_to_place_are_told(place: Muster) -> None:
    answer = place("--format", "json").json
    ways = {k: way["cut_bytes_per_step"] for k, way in answer["estimate"]["placements"].items()}
    assert ways["muster"] == answer["cut"]["zone"]["bytes_per_step"]
    assert ways["muster"] <= min(ways.values())


def test_a_job_that_must_wait(place: Muster) -> None:
    write("z[0-1]-r[0-1]-h[0-3]\n", "busy")
    result = place("--busy", "busy", "--format", "json")
    assert (result.code, result.json["outcome"]) == (3, "insufficient")
    assert (result.json["needed"], result.json["free"]) == (11, 8)
    assert result.json["free_by_domain"] == {"z0": 0, "z1": 0, "z2": 8}
    assert result.json["reason"]
    table = place("--busy", "busy")
    assert table.code == 3
    assert "insufficient: job: " in table.out
    hostfile = place("--busy", "busy", "--format", "hostfile")
    assert (hostfile.code, hostfile.out) == (3, "")
    assert "insufficient: job: " in hostfile.err


def test_a_job_larger_than_the_fabric(place: Muster) -> None:
    write("parallelism: {tp: 2, dp: 25}\ntraffic: {dp: 1}\n")
    result = place("--format", "json")
    assert (result.code, result.json["outcome"]) == (4, "infeasible")
    assert result.json["reason"] == "needs 25 hosts; mini has 24 in all"
    assert "infeasible: job: needs 25 hosts" in place().out


# --- bad input -----------------------------------------------------------------------


def test_a_bad_job_file(place: Muster) -> None:
    for text, message in (
        ("parallelism:\n  xp: 2\n", "job.yaml:2: parallelism.xp: unknown axis 'xp'"),
        (b"\x7fELF\x02\x01\xff\x00", "job.yaml:1: is not UTF-8 text"),
    ):
        write(text)
        result = place()
        assert (result.code, result.out) == (2, "")
        assert message in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--near-slack 0.1", "--near-slack: needs --near"),
        ("--near x --near-slack inf", "--near-slack"),
        ("--objective time", "objective: time needs a model and a batch"),
        ("--spares many", "command line: spares: must be auto, a whole number of hosts"),
        ("--objective speed", "'speed' is not one of"),
        ("--busy absent", "absent: no such file"),
        ("--bussy x", "No such option: --bussy"),
    ],
)
def test_a_bad_option(place: Muster, options: str, message: str) -> None:
    result = place(*options.split())
    assert result.code == 2
    assert message in " ".join(result.err.replace("│", " ").split())


@pytest.mark.parametrize("value", ["1.5", "true", "nan"])
def test_shares_outside_0_to_1_are_bad_input(place: Muster, value: str) -> None:
    write(JOB + f"spread_alpha: {value}\n")
    spread = place()
    assert "job.yaml:5: spread_alpha: must be a number from 0 to 1, not" in spread.err
    write(MODEL + f"cut_slack: {value}\n")
    slack = place()
    assert "job.yaml:6: cut_slack: must be a share from 0 to 1 or such as" in slack.err
    assert slack.err.count("\n") == 1
    assert (spread.code, slack.code) == (2, 2)


# --- near an old placement, and what stays free ---------------------------------------


def test_near_its_old_hosts_only_what_is_lost_moves(place: Muster) -> None:
    write(place("--format", "hostfile").out, "old.txt")
    old = place("--format", "json").json
    again = place("--format", "json", "--near", "old.txt").json
    assert (again["moved"], again["hosts"]) == (0, old["hosts"])
    cut = old["cut"]["zone"]["bytes_per_step"]
    assert again["near"] == {"slack": 0.0, "lost_hosts": 0, "bytes_per_step": cut}
    assert "moved 0 of 10 blocks; in its old place it would cut" in place("--near", "old.txt").out
    write(f"{old['hosts'][-1]}\n", "busy.txt")
    near = ("--near", "old.txt", "--busy", "busy.txt", "--near-slack", "9")
    assert "moved 1 of 10 blocks; 1 old host is not free" in place(*near).out
    answer = place(*near, "--format", "json").json
    assert answer["near"] == {"slack": 9.0, "lost_hosts": 1, "bytes_per_step": None}
    assert answer["hosts"][:-1] == old["hosts"][:-1]


def test_what_is_left_free(place: Muster) -> None:
    answer = place("--format", "json").json
    taken = answer["hosts"] + answer["spares"]
    by_zone = {zone: 8 - sum(h.startswith(zone) for h in taken) for zone in ("z0", "z1", "z2")}
    racks = {h.rpartition("-")[0] for h in taken}
    assert answer["left_free"] == {
        "zone": {"whole": list(by_zone.values()).count(8), "largest_hosts": max(by_zone.values())},
        "rack": {"whole": 6 - len(racks), "largest_hosts": 4},
    }
    assert "left free: 1 whole zone, " in place().out


MODEL = """
name: dense
parallelism: {tp: 2, pp: 2, dp: 5}
model: {layers: 8, hidden: 4096, ffn: 16384, heads: 32, kv_heads: 8, vocab: 32000, sequence: 4096, dtype: bf16}
batch: {global_sequences: 40, micro_sequences: 1}
"""  # noqa: E501


def test_a_job_with_a_model_is_placed_by_the_time_of_its_step(place: Muster) -> None:
    write(MODEL)
    answer = place("--format", "json").json
    by_time = answer["step"]
    assert 0 <= by_time["gap"] == by_time["seconds"] / by_time["lower_bound_seconds"] - 1
    assert answer["gap"] == by_time["gap"]
    by_cut = place("--objective", "cut", "--format", "json").json["step"]
    assert by_time["seconds"] <= by_cut["seconds"]
    assert "no placement on these hosts is faster" in place().out


def test_a_measured_compute_time_stands_in_for_a_model(place: Muster) -> None:
    write(JOB + "compute_time_s: 2.5\n")
    answer = place("--format", "json").json
    assert answer["step"]["lower_bound_seconds"] >= 2.5
    estimate = answer["estimate"]["placements"]["muster"]
    assert estimate["compute_seconds"] == 2.5
    assert estimate["step_seconds"] == answer["step"]["seconds"]
    assert "compute 2.5 s a step, as given" in place().out
    write(JOB + "compute_time_s: -1\n")
    result = place()
    assert result.code == 2
    assert "job.yaml:5: compute_time_s: must be a number above 0" in result.err


# --- links ------------------------------------------------------------------------


def test_a_gang_lies_on_one_side_of_a_link_that_is_down(place: Muster) -> None:
    write("z0: down\nz1: 14/16  # two optics\n", "links.yaml")
    before = place("--format", "json").json
    after = place("--links", "links.yaml", "--format", "json").json
    assert any(host.startswith("z0") for host in before["hosts"])
    assert after["outcome"] == "placed"
    assert not any(host.startswith("z0") for host in after["hosts"] + after["spares"])


def test_what_no_link_carries_is_named_with_its_line(place: Muster) -> None:
    write("z0: 1.5\nz9: 0.5\nz0-r0-h0: down\nz1: broken\nz0-r0: 17/16\n", "links.yaml")
    refused = place("--links", "links.yaml")
    assert refused.code == 2
    lines = refused.err.strip().splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [f"links.yaml:{number}", name]
        for number, name in enumerate(("z0", "z9", "z0-r0-h0", "z1", "z0-r0"), 1)
    ]


# --- racks of NVLink ----------------------------------------------------------------

RACKS = """name: racks
gpus_per_host: 4
tiers:
  - {name: su, count: 2}
  - {name: rack, count: 4, scale_up: {gbps_per_gpu: 7200}}
  - {name: host, count: 18}
"""
MIXTURE = """name: moe
parallelism: {ep: 64, pp: 2, dp: 2}
traffic: {ep: 100, pp: 50, dp: 200}
constraints:
  within: {ep: rack}
"""


@pytest.fixture
def on_racks(place: Muster) -> Muster:
    write(RACKS, "mini.yaml")
    write(MIXTURE)
    return place


def test_sixteen_of_eighteen_and_spares_in_the_same_racks(on_racks: Muster) -> None:
    answer = on_racks("--format", "json").json
    racks = [host.rsplit("-", 1)[0] for host in answer["hosts"]]
    assert [racks[i : i + 16] for i in range(0, 64, 16)] == [
        [rack] * 16 for rack in dict.fromkeys(racks)
    ]
    assert sorted({spare.rsplit("-", 1)[0] for spare in answer["spares"]}) == sorted(set(racks))
    cut = answer["cut"]["su"]
    assert cut["bytes_per_step"] == cut["lower_bound_bytes_per_step"]
    assert "ep" not in answer["cut"]["rack"]["by_axis"]


def test_a_rack_with_two_hosts_out_holds_a_segment_and_with_three_it_does_not(
    on_racks: Muster,
) -> None:
    write("s0-r[0-3]-h[00-02]\ns1-r0-h[00-02]\n", "busy.txt")
    waits = on_racks("--busy", "busy.txt")
    assert waits.code == 3
    assert "room for 3 segments of 16 hosts" in waits.out
    write("s0-r[0-3]-h[00-02]\ns1-r0-h[00-01]\n", "busy.txt")
    assert on_racks("--busy", "busy.txt").code == 0


@pytest.mark.parametrize(
    ("file", "was", "put", "message"),
    [
        ("job", "ep: rack", "ep: hall", "job.yaml:5: constraints.within.ep: racks has no tier"),
        ("job", "ep: rack", "ep: rack, pp: rack", "32 hosts must lie in one rack"),
        ("job", "within: {ep: rack}", "segment: 3", "3 hosts do not divide the 64 of the gang"),
        ("job", "within: {ep: rack}", "segment: 32", "32 hosts must lie in one rack; racks has"),
        ("job", "{ep: 64, pp: 2, dp: 2}", "{tp: 8, ep: 16, dp: 2}", "hold parts of groups of tp"),
        ("mini", "18}", "18, scale_up: {gbps_per_gpu: 1}}", ":6: tiers.2.scale_up: host is"),
        ("mini", "2}", "2, scale_up: {gbps_per_gpu: 1}}", ":4: tiers.0.scale_up: only"),
        ("mini", "7200", "fast", "mini.yaml:5: tiers.1.scale_up.gbps_per_gpu: must be a positive"),
    ],
)
def test_what_cannot_be_is_refused(
    on_racks: Muster, file: str, was: str, put: str, message: str
) -> None:
    write({"job": MIXTURE, "mini": RACKS}[file].replace(was, put, 1), f"{file}.yaml")
    result = on_racks()
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


def test_segments_are_of_consecutive_hosts_and_groups_may_not_be(on_racks: Muster) -> None:
    job = MIXTURE.replace("ep: 64", "tp: 4, ep: 16").replace(
        "{ep: rack}", "{pp: rack}\n  segment: 2"
    )
    write(job, "job.yaml")
    message = "job.yaml:6: constraints.segment: is of consecutive hosts, and the groups named by"
    assert on_racks().err.startswith(message)
    write(job.replace("pp: 2, dp: 2}", "pp: 2, dp: 2, order: tp-pp-ep-dp}"), "job.yaml")
    assert on_racks().code == 0


def test_a_job_on_the_trays_of_a_mixed_fabric(on_racks: Muster) -> None:
    write((ROOT / "examples/fabric-mixed.yaml").read_text(), "mini.yaml")
    here = MIXTURE.replace("within:", "hosts: {gpu: gb200}\n  within:")
    write(here, "job.yaml")
    answer = on_racks("--format", "json").json
    assert answer["gpus_per_host"] == 4
    assert {host.split("-")[0] for host in answer["hosts"]} == {"nvl"}
    write(MIXTURE)
    assert "8 hosts must lie in one rack; mixed has 4" in on_racks().err


# --- certificates ------------------------------------------------------------------------------


@pytest.fixture
def certificate(muster: Muster, tmp_path: Path) -> Path:
    path = tmp_path / "c.json"
    words = ("place", "job.yaml", "--fabric", "mini.yaml", "--certificate", str(path))
    assert muster(*words).code == 0
    return path


def changed(path: Path, **claims: object) -> Path:
    content = json.loads(path.read_text())
    content["claims"] |= claims
    content["digests"] = {part: digest(content[part]) for part in SEALED}
    path.write_text(json.dumps(content))
    return path


def test_a_certificate_is_confirmed(muster: Muster, certificate: Path) -> None:
    result = muster("verify", str(certificate))
    assert result.code == 0
    assert result.out.startswith("confirmed: ")
    answer = muster("verify", str(certificate), "-o", "json").json
    assert (answer["outcome"], answer["is_whole"]) == ("confirmed", True)


def test_another_host_is_refused(muster: Muster, certificate: Path) -> None:
    hosts = json.loads(certificate.read_text())["claims"]["hosts"]
    path = changed(certificate, hosts=[*hosts[:-1], hosts[0]])
    result = muster("verify", str(path))
    assert (result.code, "needed, each once" in result.out) == (1, True)
    answer = muster("verify", str(path), "-o", "json")
    assert (answer.code, answer.json["outcome"]) == (1, "refused")


def test_what_is_no_certificate_is_named(muster: Muster) -> None:
    for text, message in (
        ("[]", "c.json: must be a mapping"),
        ("{}", "c.json: format: is missing"),
        ("[" * 100_000, "c.json: is nested too deep"),
        ("9" * 5_000, "c.json: is not JSON: Exceeds the limit"),
    ):
        Path("c.json").write_text(text)
        result = muster("verify", "c.json")
        assert (result.code, message in result.err) == (2, True), result.err


def test_the_checker_runs_without_the_engine(certificate: Path) -> None:
    """Nothing but the standard library and its three files is loaded."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['verify', {str(certificate)!r}]\n"
        "try: runpy.run_module('muster.verify', run_name='__main__')\n"
        "finally:\n"
        "    known = sys.stdlib_module_names | {'muster', '__main__'}\n"
        "    print({name.split('.')[0] for name in sys.modules} - known, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert (done.returncode, done.stderr.strip()) == (0, "set()"), done.stderr
    assert done.stdout.startswith("confirmed: ")


def test_several_jobs_have_no_one_certificate(muster: Muster) -> None:
    Path("two.yaml").write_text(f"{JOB}---\n{JOB.replace('name: job', 'name: b')}")
    result = muster("place", "two.yaml", "--fabric", "mini.yaml", "--certificate", "c.json")
    assert (result.code, "has several jobs" in result.err) == (2, True)
