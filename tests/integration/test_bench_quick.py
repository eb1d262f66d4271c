"""The benchmark itself: a dozen instances, answers checked, the page in shape."""

import asyncio
import json
import os
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bench.peers.graph import PartitioningTask, block_edges, tasks
from bench.peers.rank_order import best_fit, fewest_domains, randomly
from bench.peers.scoring import Guarded, fitted
from bench.placement import arnold_setting
from bench.placement.__main__ import main
from bench.placement.ablation import ABLATION_BEGIN, ABLATION_END, AblationOutcome, growth, read
from bench.placement.instances import families, instance
from bench.service.clients import METHODS, load, requests
from bench.service.wire import WireCallFailed, WireConnection
from bench.steps import seconds
from bench.steps.instances import timed
from bench.steps.peers import PEERS
from bench.steps.seconds import PeerStepRow
from bench.tables import BEGIN, END
from placement.fabric.tree import Ints
from scheduler.v1 import service_pb2
from tests.build import request
from tests.serving import Served


def stale(page: Path, begin: str = BEGIN, end: str = END) -> Path:
    """A page with a table of last year between two lines that stay."""
    page.write_text(f"above\n{begin}\nSTALE\n{end}\nbelow\n")
    return page


def renewed(page: Path) -> str:
    """Check that all but the table has stayed; return the page."""
    text = page.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "STALE" not in text
    return text


@pytest.mark.slow
def test_a_quick_run_is_valid_and_renews_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, numbers = stale(tmp_path / "page.md"), tmp_path / "numbers.json"
    assert main(["--quick", "--json", str(numbers), "--docs", str(page)]) == 0
    found = json.loads(numbers.read_text())
    assert len(found["own"]) == 12
    assert all(row["bound"] <= row["cut"] for row in found["own"])
    text, printed = renewed(page), capsys.readouterr().out
    assert "### Targets" in text
    assert printed in text
    assert main(["--from", str(numbers)]) == 0
    assert capsys.readouterr().out == printed


def test_every_gang_fits_what_is_free_and_is_rebuilt_from_its_number() -> None:
    for index in range(0, len(families()), 9):
        inst, again = instance(index), instance(index)
        assert 1 <= inst.gang <= min(3_000, inst.free.bit_count())
        assert (inst.free, inst.request) == (again.free, again.request)
    assert instance(5).free != instance(5, seed=4).free


def test_block_edges_of_two_by_three() -> None:
    gang = request(tp=8, pp=2, dp=3, traffic={"dp": 10, "pp": 3})
    heads, tails, weights = block_edges(gang, 8, 6)
    found = dict(zip(zip(heads.tolist(), tails.tolist(), strict=True), weights, strict=True))
    ring = {(0, 2), (2, 4), (0, 4), (1, 3), (3, 5), (1, 5)}
    assert found == dict.fromkeys(ring, 80) | dict.fromkeys([(0, 1), (2, 3), (4, 5)], 24)


def test_peers_of_rank_order_keep_capacities_and_repair_makes_others_keep_them() -> None:
    task = tasks(instance(9))[0]
    for peer in (best_fit, fewest_domains, randomly):
        for part in peer(task):
            assert not fitted(task, part)[1]
    part, is_repaired = fitted(task, np.zeros(task.blocks, dtype=np.int64))
    assert is_repaired
    assert (np.bincount(part, minlength=len(task.capacities)) <= np.array(task.capacities)).all()


async def test_calls_of_the_load_arrive_and_one_that_is_refused_ends_it(served: Served) -> None:
    """The clients that measure: real calls, and no failure passes for an answer."""

    def call(path: str) -> None:
        with closing(WireConnection(served.ready.address)) as connection:
            connection.ask(path, b"")
            while not connection.read_answer():
                pass

    before = (await served.stub.GetStatus(service_pb2.GetStatusRequest())).version
    address = served.ready.address
    found = await asyncio.to_thread(load, address, "churn", clients=3, seconds=0.3, first=0)
    after = (await served.stub.GetStatus(service_pb2.GetStatusRequest())).version
    assert len(found["took_us"]) >= 3
    assert after > before + len(found["took_us"])
    for path in (METHODS["submit"][0], "/scheduler.v1.SchedulerService/Nothing"):
        with pytest.raises(WireCallFailed, match="grpc-status"):
            await asyncio.to_thread(call, path)


@pytest.mark.slow
async def test_a_connection_takes_more_than_a_window_of_bytes(served: Served) -> None:
    def call_often(sent: int = 0) -> None:
        with closing(WireConnection(served.ready.address)) as connection:
            for bodies in requests(0):
                for path, body in zip(METHODS["churn"], bodies, strict=True):
                    connection.ask(path, body)
                    while not connection.read_answer():
                        pass
                sent += len(bodies[0])
                if sent > 70_000:
                    return

    await asyncio.to_thread(call_often)


def _crashes(task: PartitioningTask) -> Iterable[Ints]:
    os._exit(3)


def _hangs_after_one(task: PartitioningTask) -> Iterable[Ints]:
    yield from fewest_domains(task)[:1]
    time.sleep(60)


def _raises(task: PartitioningTask) -> Iterable[Ints]:
    raise ArithmeticError("no")


@pytest.mark.slow
def test_a_peer_that_crashes_hangs_or_raises_is_a_row() -> None:
    task = tasks(instance(9))[0]
    crashed, hung, raised = (
        Guarded("peer", solve, grace=2) for solve in (_crashes, _hangs_after_one, _raises)
    )
    try:
        first, again = crashed.score([task]), crashed.score([task])
        assert (first.cut, first.why, again.why) == (None, "crashed", "crashed")
        found = hung.score([task])
        assert found.cut == task.score(fewest_domains(task)[0])
        assert found.why == "killed after 2 s"
        assert raised.score([task]).why == "ArithmeticError: no"
    finally:
        for peer in (crashed, hung, raised):
            peer.close()


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "alpha"), [((8, 128, 4), 0.2), ((32, 32, 8), 0.8)])
def test_no_baseline_spreads_less_in_arnolds_setting(
    setting: tuple[int, int, int], alpha: float
) -> None:
    """The weights at which layouts of one alpha for all fell behind a baseline."""
    minipods, hosts, stages = setting
    inst = arnold_setting.instance(minipods, hosts, stages, alpha, "1/0")
    found = arnold_setting.measured(inst, alpha, "quick").spread
    assert found["muster"] <= min(found.values())
    assert found["muster"] < found["best-fit"]


@pytest.mark.slow
@pytest.mark.parametrize("index", range(28))
def test_no_peer_places_a_faster_step(index: int) -> None:
    """On one instance of each fabric and job of make bench-time; muster's answer is checked."""
    assert seconds.faster_peers([seconds.measured(timed(index, seed=202))]) == []


def test_the_tables_of_steps_are_made_again_from_stored_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = dict.fromkeys(PEERS, 2.2) | {"random": 1.9}
    cuts = dict.fromkeys(PEERS, 300) | {"random": 500}  # fewer bytes count in short steps alone
    name = "1:0 roce-24k 405b-16k"
    row = PeerStepRow(name, "roce-24k", "405b-16k", 0.6, 2.0, 1.99, 0.4, 0.5, 400, peers, cuts)
    numbers, page = tmp_path / "numbers.json", stale(tmp_path / "page.md")
    numbers.write_text(json.dumps([asdict(row)]))
    arguments = ["seconds", "--from", str(numbers), "--docs", str(page)]
    monkeypatch.setattr("sys.argv", arguments)
    assert seconds.main() == 1  # at random was faster
    printed = capsys.readouterr().out
    assert "random is 5.0 % faster" in printed
    assert "% less" not in printed
    assert "| gap of the step at p90" in renewed(page)


def test_an_ablation_leaves_out_techniques_and_renews_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, numbers = tmp_path / "page.md", tmp_path / "numbers.json"
    stale(page, ABLATION_BEGIN, ABLATION_END)
    left_out = "annealing inside a domain,branch and price"
    options = ["--mode", "ablation", "--seed", "201", "--instances", "1", "--without"]
    with pytest.raises(SystemExit, match="no gang asks for witchcraft; they ask for"):
        main([*options, "witchcraft"])
    assert main([*options, left_out, "--json", str(numbers), "--docs", str(page)]) == 0
    measured = read(numbers)
    assert sorted(measured.outcomes) == ["", *sorted(left_out.split(","))]
    for technique in left_out.split(","):
        for name, without in measured.outcomes[technique].items():
            assert technique in measured.outcomes[""][name].techniques
            assert technique in without.techniques  # which asked for it in vain
    printed = capsys.readouterr().out
    assert printed.strip() in renewed(page)
    assert main(["--mode", "ablation", "--from", str(numbers)]) == 0
    assert capsys.readouterr().out == printed


def test_growth_counts_what_is_minimised_first() -> None:
    before = AblationOutcome((10.0, 100.0), 0.01, 9.0, True, 1.0, ())
    assert growth(before, replace(before, values=(10.05, 90.0))) == pytest.approx(-0.1)
    assert growth(before, replace(before, values=(11.0, 90.0))) == pytest.approx(0.1)
    assert growth(before, before) == 0
