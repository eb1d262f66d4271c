"""`muster checkpoint`, and the copies in `muster place`: figures that fit together."""

from pathlib import Path
from typing import Any

import pytest

from placement.workload.flops import parameter_count
from scheduler.cli.offline.checkpoint import FailureModel, efficiency
from scheduler.files.inputs import load_job
from tests.commands import MODEL, answer, invoke, refusal

JOB = f"{MODEL}name: job\nparallelism: {{tp: 8, pp: 4, dp: 12}}\nbatch: {{global_sequences: 96}}\n"
ROCE = ("--fabric", "roce-24k")
BARE = "name: bare\nparallelism: {tp: 8, dp: 12}\ntraffic: {dp: 9}\nspares: 0\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)
    Path("bare.yaml").write_text(BARE)


def test_the_write_time_follows_from_the_model() -> None:
    request = load_job("job.yaml").request
    assert request.model
    state = 12 * parameter_count(request.model)
    body = answer("checkpoint", "job.yaml", *ROCE, "--bandwidth", "100", "--rate", "6.5")
    assert body["bytes"] == state
    assert body["write_seconds"] == pytest.approx(state / 100e9)
    assert body["mean_seconds_between_failures"] == pytest.approx(86_400 / (48 * 6.5e-3))
    card = 8 * 50e9  # storage is no faster than the cards of 48 hosts
    body = answer("checkpoint", "job.yaml", *ROCE, "--bandwidth", "1e8")
    assert body["write_seconds"] == pytest.approx(state / (48 * card))
    assert body["load_from_peer_seconds"] == pytest.approx(state / 48 / card, rel=1e-6)


def test_each_share_is_that_of_its_interval() -> None:
    options = ("--write-s", "60", "--restart-s", "200", "--down-s", "9")
    body = answer("checkpoint", "job.yaml", *ROCE, *options)
    faults = FailureModel(body["mean_seconds_between_failures"], 60, 200, 9)
    for found in (body, *body["sensitivity"]):
        assert found["goodput"] == pytest.approx(efficiency(faults, found["period_seconds"]))
    best = max(found["goodput"] for found in body["sensitivity"])
    assert body["goodput"] == pytest.approx(best)
    assert best < body["without_writes"] < 1


def test_place_says_where_the_copies_are() -> None:
    Path("job.yaml").write_text(JOB + "checkpoint: {peers: 2}\n")
    body = answer("place", "job.yaml", *ROCE)
    found = body["checkpoint"]
    assert list(found["copies"]) == body["hosts"]
    for host, holders in found["copies"].items():
        assert len(set(holders)) == 2
        assert host.rsplit("-", 1)[0] not in {h.rsplit("-", 1)[0] for h in holders}
    assert found["close"] == []
    assert found["survival"][0] == {"failed": 2, "probability": 1.0, "exact": True}
    assert {d["tier"]: d["fatal"] for d in found["domains"]} == {"zone": 1, "rack": 0}
    text = invoke("place", "job.yaml", *ROCE).output
    assert "each host's state in the memory of 2 other hosts" in text
    assert "the copies survive the loss of any rack" in text


def test_estimate_says_as_place_does_what_renewals_take_of_links_and_steps() -> None:
    command = ("job.yaml", *ROCE)
    Path("job.yaml").write_text(JOB + "checkpoint: {peers: 1, peer_interval_s: 1}\n")
    placed = answer("place", *command)["checkpoint"]
    [estimated] = answer("estimate", *command)["estimates"]
    found = estimated["checkpoint"]
    assert found == {key: placed[key] for key in ("renewal", "renewal_delay_seconds")}
    share = {load["tier"]: load["busy_share"] for load in found["renewal"]}
    assert 0 < share["rack"] <= share["host"] < 1
    exposed_s = estimated["placements"]["muster"]["exposed_seconds"]
    assert 0 < found["renewal_delay_seconds"] <= max(share.values()) * exposed_s
    [line] = _renewal_lines(invoke("estimate", *command).output)
    assert line in invoke("place", *command).output
    assert " for it on average, at most" in line


def test_estimates_of_jobs_whose_renewals_delay_nothing_say_so_or_nothing() -> None:
    assert _renewal_lines(invoke("estimate", "job.yaml", *ROCE).output) == []
    Path("job.yaml").write_text(JOB + "checkpoint: {peers: 1}\ntraffic: {pp: 0, dp: 0}\n")
    [line] = _renewal_lines(invoke("estimate", "job.yaml", *ROCE).output)
    assert line.endswith("hidden behind compute: no step waits for it")
    Path("bare.yaml").write_text(BARE + "checkpoint: {peers: 1}\n")
    assert "checkpoint" not in answer("estimate", "bare.yaml", *ROCE)["estimates"][0]
    assert answer("place", "bare.yaml", *ROCE)["checkpoint"]["renewal"] == []


def _renewal_lines(text: str) -> list[str]:
    lines = (line.removeprefix("copies in memory: ") for line in text.splitlines())
    return [line for line in lines if line.startswith("renewed every ")]


STORED = """\
name: stored
gpus_per_host: 8
storage: {write_gb_per_s: 20, read_gb_per_s: 70, capacity_tb: 240}
tiers: [{name: zone, count: 4}, {name: rack, count: 32}, {name: host, count: 4}]
"""


def stored(*options: str) -> dict[str, Any]:
    Path("stored.yaml").write_text(STORED)
    return dict(answer("checkpoint", "job.yaml", "--fabric", "stored.yaml", *options))


def test_storage_of_the_fabric_sets_the_write_and_what_fits() -> None:
    found = stored()
    assert found["write_seconds"] == pytest.approx(found["bytes"] / 20e9)
    assert found["storage"]["checkpoints_that_fit"] == 240 * 10**12 // found["bytes"]
    assert found["storage"]["load_seconds"] == pytest.approx(found["bytes"] / 70e9)
    assert found["storage"]["read_seconds_of_a_step"] == pytest.approx(96 * 8192 * 4 / 70e9)
    assert stored("--bandwidth", "10")["write_seconds"] == pytest.approx(found["bytes"] / 10e9)


def test_gangs_that_write_there_as_well_make_intervals_longer() -> None:
    alone, beside = stored(), stored("--beside", "job.yaml", "--beside", "job.yaml")
    write_s, size = alone["write_seconds"], alone["bytes"]
    busy = 2 * write_s / alone["period_seconds"]
    assert beside["storage"]["busy_with_others"] == pytest.approx(busy)
    assert beside["write_seconds"] == pytest.approx(write_s * (1 + busy))
    assert beside["period_seconds"] > alone["period_seconds"]
    # Intervals and checkpoints that a neighbour states count.
    Path("keeps.yaml").write_text(JOB + "checkpoint: {interval_s: 100, keep: 5}\n")
    beside = stored("--beside", "keeps.yaml")
    assert beside["storage"]["busy_with_others"] == pytest.approx(write_s / (100 + write_s))
    assert beside["storage"]["kept_tb"] == pytest.approx(5 * size / 1e12)
    full_s = (240 * 10**12 / size - 5) * beside["period_seconds"]
    assert beside["storage"]["full_after_seconds"] == pytest.approx(full_s)


def test_gangs_that_share_no_path_to_the_storage_leave_each_other_more_of_it() -> None:
    zoned = STORED.replace("capacity_tb: 240", "by_tier: {zone: {write_gb_per_s: 4}}")
    Path("zoned.yaml").write_text(zoned)
    Path("states.yaml").write_text(JOB + "checkpoint: {interval_s: 100}\n")

    def advised(*options: str) -> dict[str, Any]:
        return dict(answer("checkpoint", "states.yaml", "--fabric", "zoned.yaml", *options))

    beside = ("--beside", "states.yaml")
    alone, two, three = advised(), advised(*beside), advised(*beside, *beside)
    assert alone["write_seconds"] == pytest.approx(alone["bytes"] / 4e9)
    assert alone["storage"]["write_limit"] == "the path of zone z0 to the storage"
    busy = alone["write_seconds"] / (100 + alone["write_seconds"])
    assert two["storage"]["slowdown"] == pytest.approx(1 + busy)  # two gangs of 48 in 128 hosts
    assert three["storage"]["slowdown"] == pytest.approx(1 + busy)  # one of three is alone
    Path("states.yaml").write_text(JOB.replace("dp: 12", "dp: 96"))
    told = refusal("checkpoint", "states.yaml", "--fabric", "zoned.yaml", *beside)
    assert "states.yaml: finds no hosts, whose paths to storage count: needs 384 hosts" in told


def test_more_checkpoints_than_the_storage_holds_are_called_so() -> None:
    Path("stored.yaml").write_text(STORED.replace("240", "1"))
    Path("keeps.yaml").write_text(JOB + "checkpoint: {keep: 30}\n")
    text = invoke("checkpoint", "keeps.yaml", "--fabric", "stored.yaml").output
    assert "TB of checkpoints are to be kept, more than its 1.00 TB" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "--write-s: is needed: the job has no model to size"),
        ("--bandwidth 0", "--bandwidth: must be a positive number, not 0"),
        ("--write-s nan", "--write-s: must be a positive number, not nan"),
        ("--write-s 9 --bandwidth 8", "--bandwidth: conflicts with --write-s"),
        ("--rate 1e-300 --write-s 9", "--rate: must be at least 1e-09, not 1e-300"),
        ("--rate 2e9", "--rate: must be at most 1,000,000,000, not 2e+09"),
        ("--write-s 9 --beside bare.yaml", "bare.yaml: model: is needed to size its checkpoints"),
    ],
)
def test_bad_options_are_named(options: str, message: str) -> None:
    assert message in refusal("checkpoint", "bare.yaml", *ROCE, *options.split())


@pytest.mark.parametrize("option", ["--restart-s", "--down-s"])
@pytest.mark.parametrize("value", ["inf", "nan", "-1"])
def test_times_are_finite(option: str, value: str) -> None:
    result = invoke("checkpoint", "job.yaml", *ROCE, option, value)
    assert result.exit_code == 2
    assert option in result.output


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{peer: 1}", "job.yaml:6: checkpoint.peer: unknown key 'peer', did you mean peers?"),
        ("{interval_s: 0}", "checkpoint.interval_s: must be at least 1, is 0"),
        ("{peers: 1.5}", "checkpoint.peers: must be a whole number of hosts, not 1.5"),
        ("{peers: 1}", "checkpoint.peers: a copy lies in no TP"),
    ],
)
def test_bad_keys_are_named_with_their_line(keys: str, message: str) -> None:
    Path("job.yaml").write_text(f"{JOB.replace('dp: 12', 'dp: 1')}checkpoint: {keys}\n")
    assert message in refusal("place", "job.yaml", *ROCE)
