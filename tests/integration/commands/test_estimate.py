"""`muster estimate`, and the same in `muster place`: sums that add up, options that count."""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler.cli.render.place.steps import by_name
from tests.build import fabric
from tests.commands import MODEL, invoke, refusal
from tests.commands import answer as asked

FABRIC = """\
name: {name}
gpus_per_host: 8
tiers:
  - {{name: zone, count: 4, oversubscription: {oversubscription}}}
  - {{name: rack, count: 8}}
  - {{name: host, count: 2}}
"""
SHAPE = "parallelism: {tp: 8, pp: 4, dp: 8}\n"
JOB = f"{MODEL}name: job\n{SHAPE}batch: {{global_sequences: 64}}\nobjective: cut\n"
BARE = f"name: bare\n{SHAPE}traffic: {{pp: 300e6, dp: 900e6}}\nspares: 0\n"


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("estimate"))
    Path("narrow.yaml").write_text(FABRIC.format(name="narrow", oversubscription=14))
    Path("wide.yaml").write_text(FABRIC.format(name="wide", oversubscription=1))
    Path("job.yaml").write_text(JOB)
    Path("bare.yaml").write_text(BARE)
    yield
    os.chdir(folder)


@cache
def estimate(*arguments: str, job: str = "job.yaml", fabrics: tuple[str, ...] = ("narrow",)) -> Any:
    """The JSON answer of an estimate that must succeed, which tests only read."""
    chosen = [part for name in fabrics for part in ("--fabric", f"{name}.yaml")]
    return asked("estimate", job, *chosen, *arguments)


def placements(answer: Any, fabric: int = 0) -> Any:
    return answer["estimates"][fabric]["placements"]


def test_a_step_is_the_sum_of_what_it_shows() -> None:
    for step in placements(estimate()).values():
        exposed = sum(axis["exposed_seconds"] for axis in step["axes"].values())
        parts = step["compute_seconds"] + step["bubble_seconds"] + exposed
        assert step["step_seconds"] == pytest.approx(max(parts, step["busiest_link"]["seconds"]))
        assert step["exposed_seconds"] == pytest.approx(exposed)


def test_compute_follows_from_the_flops_and_the_rate_that_is_given() -> None:
    ranks = 256
    answer = estimate("--peak-tflops", "1000", "--achieved-tflops", "600")
    step = placements(answer)["muster"]
    assert answer["assumptions"]["achieved_tflops"] == 600
    assert step["compute_seconds"] == pytest.approx(step["model_flops"] / (ranks * 600e12))
    assert step["mfu"] == pytest.approx(step["model_flops"] / (ranks * 1e15 * step["step_seconds"]))
    assert step["likely_seconds"] is None


def test_layers_are_shares_of_the_step() -> None:
    step = placements(estimate())["muster"]
    tp = step["axes"]["tp"]
    assert tp["runs_on"] == "host"
    assert list(tp["layers"]) == ["scale-up"]
    for axis in step["axes"].values():
        slowest = max(layer["seconds"] for layer in axis["layers"].values())
        assert axis["seconds"] == slowest
        for layer in axis["layers"].values():
            assert layer["share"] == pytest.approx(layer["seconds"] / step["step_seconds"])


def test_random_placements_differ_by_network_and_no_others_do() -> None:
    narrow, wide = (placements(estimate(fabrics=("narrow", "wide")), i) for i in (0, 1))
    in_order = narrow["muster"]["step_seconds"] / wide["muster"]["step_seconds"]
    at_random = narrow["at_random"]["step_seconds"] / wide["at_random"]["step_seconds"]
    assert in_order < 1.06
    assert at_random > 1.1


def test_busy_hosts_are_kept_out_of_every_way_to_place() -> None:
    """With all but two zones taken no way can use a third one's uplink."""
    Path("busy").write_text("z0-r[0-7]-h[0-1]\n")
    answer = estimate("--busy", "busy")
    for step in placements(answer).values():
        for axis in step["axes"].values():
            for layer in axis["layers"].values():
                assert not layer["busiest"].startswith("z0")


def test_a_job_without_a_model() -> None:
    step = placements(estimate(job="bare.yaml"))["muster"]
    assert step["compute_seconds"] is None
    assert step["mfu"] is None
    assert step["step_seconds"] == pytest.approx(step["exposed_seconds"])
    Path("timed.yaml").write_text(BARE + "compute_time_s: 2\n")
    timed = placements(estimate(job="timed.yaml"))["muster"]
    assert timed["compute_seconds"] == 2
    assert timed["step_seconds"] > 2
    text = invoke("estimate", "bare.yaml", "--fabric", "narrow.yaml").stdout
    assert "no model" in text
    assert "communication" in text


def test_the_table() -> None:
    fabrics = ("--fabric", "narrow.yaml", "--fabric", "wide.yaml")
    text = invoke("estimate", "job.yaml", *fabrics).stdout
    lines = text.splitlines()
    assert lines[0].startswith("job: 256 ranks; compute ")
    assert [line.split()[0] for line in lines if "  muster  " in line] == ["narrow", "wide"]
    assert sum("at random" in line for line in lines) == 2
    assert "on narrow, as muster places it:" in lines
    assert "idles" in text  # a long bubble is worth a word
    Path("many.yaml").write_text(JOB.replace("global_sequences: 64", "global_sequences: 800"))
    assert "idles" not in invoke("estimate", "many.yaml", *fabrics).stdout


def test_place_carries_the_same_estimate() -> None:
    command = ("place", "job.yaml", "--fabric", "narrow.yaml")
    mine = estimate()["estimates"][0]
    assert asked(*command)["estimate"] == {
        key: mine[key] for key in ("placements", "gpus", "compute_seconds")
    }
    text = invoke(*command).stdout
    assert "a step: compute" in text
    assert "at random" in text


def test_steps_wait_for_data_and_checkpoints_beside_other_gangs() -> None:
    storage = "storage: {write_gb_per_s: 10, read_gb_per_s: 2, capacity_tb: 1}\n"
    Path("stored.yaml").write_text(FABRIC.format(name="stored", oversubscription=1) + storage)
    reading = "dataset: {token_bytes: 2000}\ncheckpoint: {interval_s: 600, keep: 10}\n"
    Path("reads.yaml").write_text(JOB + reading)
    answer = estimate("--beside", "reads.yaml", job="reads.yaml", fabrics=("stored",))
    found, step_s = answer["estimates"][0]["storage"], placements(answer)["muster"]["step_seconds"]
    read_bytes = 64 * 8192 * 2000
    assert found["read_gb_per_s"] == pytest.approx(read_bytes / step_s / 1e9)
    assert (found["left_gb_per_s"], found["other_gangs"]) == (1, 1)
    assert found["read_exposed_seconds"] == pytest.approx(read_bytes / 1e9 - step_s)
    assert found["checkpoint_seconds"] > found["checkpoint_seconds_alone"]
    cost = found["checkpoint_seconds"] * step_s / 600
    assert found["checkpoint_exposed_seconds"] == pytest.approx(cost)
    told = ("reads.yaml", "--fabric", "stored.yaml")
    text = invoke("estimate", *told, "--beside", "reads.yaml").stdout
    assert "warning: storage: reads" in text
    assert "a step with that: " in text
    assert "storage: reads" in invoke("place", *told).stdout


def test_a_gang_that_never_talks_or_does_not_fit_has_no_estimate() -> None:
    Path("alone.yaml").write_text("name: alone\nparallelism: {dp: 1}\nspares: 0\n")
    Path("one.yaml").write_text(FABRIC.format(name="one", oversubscription=1).replace(": 8", ": 1"))
    result = invoke("estimate", "alone.yaml", "--fabric", "one.yaml")
    assert (result.exit_code, "no communication to estimate" in result.stdout) == (0, True)
    Path("silent.yaml").write_text("name: silent\nparallelism: {dp: 16}\nspares: 0\n")
    assert "axis  runs on" not in invoke("place", "silent.yaml", "--fabric", "wide.yaml").stdout
    Path("tiny.yaml").write_text(FABRIC.format(name="tiny", oversubscription=7).replace("4", "1"))
    result = invoke("estimate", "job.yaml", "--fabric", "tiny.yaml", "--fabric", "wide.yaml")
    assert result.exit_code == 4
    assert "on tiny: infeasible: job: needs 32 hosts" in result.stdout
    assert "on wide, as muster places it:" in result.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("job.yaml --achieved-tflops 5000", "must be at most the peak of one H100, 989.4"),
        ("job.yaml --peak-tflops nan", "--peak-tflops: must be a positive number"),
        (
            "job.yaml --achieved-tflops 400 --peak-tflops 300",
            "must be at most the peak of one GPU, 300 (as given), is 400",
        ),
        ("job.yaml --busy job.yaml --busy job.yaml", "2 files for 1 fabrics"),
        ("job.yaml --beside job.yaml", "--beside: needs `storage` in the file of narrow"),
        ("job.yaml --routing hash", "--routing: must be one of ecmp"),
        ("job.yaml --routing e-ecmp:0", "--routing: queue pairs"),
        ("job.yaml --failed z0-ctsw00", "--failed: needs --routing"),
        ("job.yaml --routing ecmp --failed nothing", "--failed: narrow has no"),
        ("job.yaml --gpus 64", "--gpus: needs --sweep"),
        ("job.yaml --sweep --routing ecmp", "--routing: is not for --sweep"),
        ("job.yaml --sweep --gpus 12", "--gpus: 12 do not fill whole hosts of 8"),
        ("job.yaml --sweep --gpus 80000", "--gpus: 80,000 are more than the"),
        ("job.yaml --sweep --fabric ib-24k", "--sweep: takes one --fabric"),
        ("bare.yaml --sweep", "model: is needed to compare parallelism"),
        ("job.yaml --simulate --routing ecmp", "--simulate: conflicts with --routing"),
        ("bare.yaml --simulate", "bare.yaml: batch: is needed to simulate a pipeline"),
    ],
)
def test_what_cannot_be_estimated_is_refused(words: str, says: str) -> None:
    assert says in refusal("estimate", *words.split(), "--fabric", "narrow.yaml")


# --- routing ---------------------------------------------------------------------------


def test_each_fabric_is_estimated_under_its_own_routing_and_a_verdict_compares_them() -> None:
    text = Path("wide.yaml").read_text()
    Path("hashed.yaml").write_text(f"{text}routing: ecmp\n")
    Path("wrong.yaml").write_text(f"{text}routing: magic\n")
    step = placements(estimate("--routing", "ecmp", fabrics=("wide",)))["muster"]
    both = estimate(fabrics=("hashed", "wide"))
    assert placements(both, 0)["muster"] == step
    assert placements(both, 1)["muster"] == placements(estimate(fabrics=("wide",)))["muster"]
    assert step["routing"]["slowdown"] > 1.2
    for name, axis in step["routing"]["axes"].items():
        assert step["axes"][name]["seconds"] == pytest.approx(axis["seconds"])
    files = ("--fabric", "hashed.yaml", "--fabric", "wide.yaml")
    verdict = invoke("estimate", "job.yaml", *files).stdout.splitlines()[-1]
    assert verdict.startswith("wide is faster by up to ")
    assert " under ecmp " in verdict
    same = invoke("estimate", "job.yaml", "--fabric", "wide.yaml", "--fabric", "wide.yaml")
    assert same.stdout.splitlines()[-1].startswith("equivalent within 0.0 %")
    down = refusal("estimate", "job.yaml", "--fabric", "hashed.yaml", "--failed", "nowhere")
    assert "--failed: " in down
    assert "needs --routing" not in down
    wrong = refusal("estimate", "job.yaml", "--fabric", "wrong.yaml")
    assert wrong.startswith("wrong.yaml:7: routing: must be one of ecmp")


def test_replicas_of_shard_groups_are_routed_too() -> None:
    Path("hsdp.yaml").write_text(JOB + "training: {shard_group: 4}\n")
    axes = placements(estimate("--routing", "ecmp", job="hsdp.yaml"))["muster"]["routing"]["axes"]
    assert set(axes) >= {"pp", "dp", "dp_replicate"}


# --- choices of parallelism ----------------------------------------------------------------


def test_a_sweep_ranks_what_fits_by_placed_steps() -> None:
    options = ("estimate", "job.yaml", "--fabric", "narrow.yaml", "--sweep", "--gpus", "16")
    found = asked(*options, "--top", "4")
    steps = [choice["step_seconds"] for choice in found["choices"]]
    assert len(steps) == 4
    assert steps == sorted(steps)
    assert all(choice["fits"] for choice in found["choices"])
    assert all(np.prod([*choice["parallelism"].values()]) == 16 for choice in found["choices"])
    assert found["as_given"] is None
    table = invoke(*options, "--top", "1").stdout
    assert "choices of" in table
    assert "recompute" in table


def test_collectives_are_ranked_by_the_step_of_ranks_placed_for_them() -> None:
    options = ("estimate", "job.yaml", "--fabric", "narrow.yaml", "--collectives")
    found = asked(*options)["collectives"]
    steps = [each["step_seconds"] for each in found]
    assert steps == sorted(steps)
    assert {each["axis"] for each in found} == {"dp"}
    # The job gathers and scatters, which trees do not.
    assert {each["collective"] for each in found} == {
        "ring", "hierarchical", "halving_doubling", "halving_doubling_far",
    }  # fmt: skip
    assert [each["collective"] for each in found if each["as_given"]] == ["ring"]
    for option in ("--gpus", "--top"):
        assert f"{option}: is not for --collectives" in refusal(*options, option, "8")
    ring_attention = JOB.replace("pp: 4, dp: 8", "cp: 2, pp: 4, dp: 4")
    Path("cp.yaml").write_text(f"{ring_attention}training: {{context_parallel: ring}}\n")
    found = asked("estimate", "cp.yaml", *options[2:])["collectives"]
    assert {each["axis"] for each in found} == {"dp"}
    Path("vast.yaml").write_text(JOB.replace("pp: 4, dp: 8", "pp: 16, dp: 64"))
    refused = invoke("estimate", "vast.yaml", *options[2:], "--format", "json")
    assert refused.exit_code == 4
    assert "hosts; " in json.loads(refused.stdout)["reason"]


# --- other ways to place the same gang ---------------------------------------------------


def test_by_name_takes_the_first_names_in_their_order() -> None:
    f = fabric(zones=2, racks=2, hosts=3)
    free = np.array([11, 1, 5, 2, 7])
    assert f.names(by_name(f, free, 3)) == ("z0-r0-h1", "z0-r0-h2", "z0-r1-h2")


def test_simulated_steps_stand_beside_those_of_the_formula() -> None:
    ways = placements(estimate("--simulate"))
    for way in ways.values():
        assert way["compute_seconds"] < way["simulated_seconds"] < 2 * way["step_seconds"]
    assert ways["muster"]["simulated_seconds"] <= ways["at_random"]["simulated_seconds"]
    table = invoke("estimate", "job.yaml", "--fabric", "narrow.yaml", "--simulate").stdout
    head = next(line for line in table.splitlines() if line.startswith("fabric"))
    assert "simulated" in head


def test_other_placements_take_hosts_that_the_job_may_have() -> None:
    """On a fabric of two kinds of GPU, one of which lacks the job's precision."""
    Path("mixed.yaml").write_text(
        "name: mixed\ngpus_per_host: 8\ntiers: [{name: zone}, {name: host}]\ndomains:\n"
        "- {name: old, hosts: 64, labels: {gpu: a100}}\n"
        "- {name: young, hosts: 64, labels: {gpu: h100}}\n"
    )
    text = Path("job.yaml").read_text().replace("sequence: 8192", "sequence: 8192, dtype: fp8")
    Path("narrow-job.yaml").write_text(text + "\nconstraints: {hosts: {gpu: h100}}\n")
    (found,) = estimate(job="narrow-job.yaml", fabrics=("mixed",))["estimates"]
    assert found["gpus"]["kinds"] == ["H100"]
    assert found["placements"].keys() == {"muster", "fewest_domains", "by_name", "at_random"}
    Path("any.yaml").write_text(text)
    wrong = refusal("estimate", "any.yaml", "--fabric", "mixed.yaml")
    assert "model.dtype: A100 has no fp8" in wrong
