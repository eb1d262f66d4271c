"""`muster twin` as its user calls it, on a backup of a small cluster and on a server."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import program
from scheduler.core import SchedulingOptions
from scheduler.engine.snapshotter import Retention
from scheduler.service.rpc.overview import state as rpc
from simulator.cli import twin as twin_command
from simulator.cli.fork import fork_of_server, fork_of_store
from simulator.twin.answer import sentence
from tests.commands import Muster, Result
from tests.commands import muster as asked
from tests.serving import RUNNING, START_NS, Served, create, serving, url
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
    base, changed = answer["scenarios"]
    assert (base["name"], changed["name"]) == ("as it is", "spares 2 a zone, policy fifo")
    for run, other in zip(base["runs"], changed["runs"], strict=True):
        for same in ("submitted", "host_failures"):
            assert run[same] == other[same]
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
    assert names == ["as it is", "policy fifo", "drain z0 at +1d for 8h"]
    out = [each["figures"]["out_gpu_h"]["mean"] for each in found["scenarios"]]
    assert out[2] - out[0] == pytest.approx(8 * 8 * 8, rel=0.05)


def test_uplinks_tell_with_a_time_model(twin: Muster) -> None:
    asked = ("--change", "oversubscription 1", "--times", "default", "--prices", "prices.yaml")
    found: Any = twin("twin", *SHORT, *asked, "--format", "json").json
    base, wide = found["scenarios"]
    assert wide["money"]["uplinks"]["mean"] == pytest.approx(7 * base["money"]["uplinks"]["mean"])
    assert found["times"].startswith("default")


def test_numbers_of_spares_side_by_side(twin: Muster, tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text("policy: fifo\n")
    asked = [part for n in range(3) for part in ("--change", f"spares {n} a zone")]
    found: Any = twin("twin", *SHORT, "--config", "serve.yaml", "--each", *asked, "-o", "json").json
    assert found["policy"] == "fifo"
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


# --- of a running server -----------------------------------------------------------------------


MOST = SchedulingOptions(policy="fifo", assumed_limit_s=1_234)
KEPT = Retention(snapshot_events=7, log_s=None)


async def _lived(served: Served, ended: int) -> None:
    for i in range(ended):
        await served.start(f"j{i}", 2)
        await served.cancel(f"j{i}")
    for i in range(6):
        await served.stub.CreateJob(create(f"live{i}", 2))
    await served.until("live0", RUNNING)


async def test_a_fork_is_the_server_in_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "PART", 700)  # several messages, and several jobs in some
    monkeypatch.setattr(rpc, "_PAGE", 4)
    async with serving(tmp_path, options=MOST, retention=KEPT) as served:
        await _lived(served, 11)
        fork = await asyncio.to_thread(fork_of_server, served.ready.address)
        later = await asyncio.to_thread(fork_of_server, served.ready.address)
    stored = await asyncio.to_thread(fork_of_store, url(tmp_path), MOST)
    assert fork.state == later.state == stored.state
    assert fork.options == MOST
    assert fork.ended == stored.ended
    assert [job.name for job in fork.ended] == [f"j{i}" for i in range(11)]
    assert (fork.dropped, fork.source) == (0, served.ready.address)
    assert START_NS < fork.state.seen_ns <= fork.now_ns < later.now_ns


async def test_the_command_asks_the_server(tmp_path: Path) -> None:
    program.load_commands()
    words = ["twin", "--horizon", "2d", "--seeds", "1", "--format", "json", "--processes", "1"]
    async with serving(tmp_path, options=MOST) as served:
        await _lived(served, 3)
        done = await asked(served, *words, "--arrivals", "none", "--change", "policy easy")
        short = await asked(served, *words)
        wrong = await asked(served, *words, "--config", "serve.yaml")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["source"], answer["policy"]) == (served.ready.address, "fifo")
    assert [each["name"] for each in answer["scenarios"]] == ["as it is", "policy easy"]
    assert answer["fitted"][0] == "jobs: nobody comes"
    assert [run["submitted"] for run in answer["scenarios"][0]["runs"]] == [0]
    assert "less than the 1 h 00 min that a rate needs" in str(short.exception)
    assert wrong.exit_code != 0
    assert "goes with --from" in str(wrong.exception)
