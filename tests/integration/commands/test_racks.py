"""NVLink racks at the command line: what a job on them gets, and one error for each that cannot."""

from pathlib import Path

import pytest

from tests.commands import Muster

RACKS = """name: racks
gpus_per_host: 4
tiers:
  - {name: su, count: 2}
  - {name: rack, count: 4, scale_up: {gbps_per_gpu: 7200}}
  - {name: host, count: 18}
"""
JOB = """name: moe
parallelism: {ep: 64, pp: 2, dp: 2}
traffic: {ep: 100, pp: 50, dp: 200}
constraints:
  within: {ep: rack}
"""
ROOT = Path(__file__).parents[3]


def write(text: str, name: str) -> None:
    Path(name).write_text(text)


@pytest.fixture
def on_racks(place: Muster) -> Muster:
    write(RACKS, "mini.yaml")
    write(JOB, "job.yaml")
    return place


def test_sixteen_of_eighteen_and_spares_in_the_same_racks(on_racks: Muster) -> None:
    answer = on_racks("--format", "json").json
    racks = [host.rsplit("-", 1)[0] for host in answer["hosts"]]
    assert [racks[i : i + 16] for i in range(0, 64, 16)] == [
        [rack] * 16 for rack in dict.fromkeys(racks)
    ]
    assert sorted({spare.rsplit("-", 1)[0] for spare in answer["spares"]}) == sorted(set(racks))
    assert (
        answer["cut"]["su"]["bytes_per_step"] == answer["cut"]["su"]["lower_bound_bytes_per_step"]
    )
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
        (
            "job",
            "ep: rack",
            "ep: rack, pp: rack",
            "32 hosts must lie in one rack",
        ),
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
    write({"job": JOB, "mini": RACKS}[file].replace(was, put, 1), f"{file}.yaml")
    result = on_racks()
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


def test_segments_are_of_consecutive_hosts_and_groups_may_not_be(on_racks: Muster) -> None:
    job = JOB.replace("ep: 64", "tp: 4, ep: 16").replace("{ep: rack}", "{pp: rack}\n  segment: 2")
    write(job, "job.yaml")
    message = "job.yaml:6: constraints.segment: is of consecutive hosts, and the groups named by"
    assert on_racks().err.startswith(message)
    write(job.replace("pp: 2, dp: 2}", "pp: 2, dp: 2, order: tp-pp-ep-dp}"), "job.yaml")
    assert on_racks().code == 0


def test_a_job_on_the_trays_of_a_mixed_fabric(on_racks: Muster) -> None:
    write((ROOT / "examples/fabric-mixed.yaml").read_text(), "mini.yaml")
    here = JOB.replace("within:", "hosts: {gpu: gb200}\n  within:")
    write(here, "job.yaml")
    answer = on_racks("--format", "json").json
    assert answer["gpus_per_host"] == 4
    assert {host.split("-")[0] for host in answer["hosts"]} == {"nvl"}
    write(JOB, "job.yaml")
    assert "8 hosts must lie in one rack; mixed has 4" in on_racks().err
