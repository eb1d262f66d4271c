"""Schedules in MSCCL's XML: an interpreter of the test runs them on numbers."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from random import Random
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from network.collectives.msccl import AxisProgram, axis_program, msccl_algorithm
from network.scheduled_tasks import scheduled_tasks
from network.step_simulation import play
from placement import BadInput
from placement.objective.axis_loads import axis_loads
from placement.objective.cut import cut_by_axis
from placement.workload.parallelism import Parallelism
from placement.workload.request import Collective, GangRole, Request
from tests.build import fabric

USED = [each for each in Collective if each is not Collective.HIERARCHICAL]
SIZES = [(2, 1), (3, 1), (8, 1), (12, 4), (16, 8)]


def summed(used: Collective, size: int, bytes_of_edge: int = 0) -> Request:
    traffic = (("dp", bytes_of_edge or 2 * (size - 1) * 720_720),)
    return Request(Parallelism(dp=size), traffic, (("dp", used),))


def xml_of(program: AxisProgram) -> ET.Element:
    sent = program.messages()
    lines = msccl_algorithm("a <b>", program.traffic.size, program.chunks, sent, 1_000, 4_000)
    return ET.fromstring("\n".join(lines))


def run(algorithm: ET.Element, vectors: np.ndarray, draw: Random) -> np.ndarray:
    """Carry out the blocks of all ranks, whichever step may go next drawn at random."""
    held = vectors.copy()
    pipes: defaultdict[tuple[int, int, int], deque[np.ndarray]] = defaultdict(deque)
    blocks = {
        (int(gpu.get("id", "")), int(tb.get("id", ""))): (tb, list(tb))
        for gpu in algorithm
        for tb in gpu
    }
    done = dict.fromkeys(blocks, 0)

    def may_go(at: tuple[int, int]) -> bool:
        tb, steps = blocks[at]
        if done[at] == len(steps):
            return False
        step = steps[done[at]]
        depends, on = int(step.get("depid", "")), int(step.get("deps", ""))
        if depends >= 0:
            other = blocks[at[0], depends][1][on]
            assert other.get("hasdep") == "1"
            if done[at[0], depends] <= on:
                return False
        if step.get("type") in ("r", "rrc"):
            return bool(pipes[int(tb.get("recv", "")), at[0], int(tb.get("chan", ""))])
        return True

    while ready := [at for at in blocks if may_go(at)]:
        at = draw.choice(ready)
        tb, steps = blocks[at]
        step, rank, channel = steps[done[at]], at[0], int(tb.get("chan", ""))
        first, count = int(step.get("srcoff", "")), int(step.get("cnt", ""))
        assert (step.get("srcbuf"), step.get("dstbuf")) == ("i", "i")
        part = slice(first, first + count)
        match step.get("type"):
            case "s":
                pipes[rank, int(tb.get("send", "")), channel].append(held[rank, part].copy())
            case "rrc":
                held[rank, part] += pipes[int(tb.get("recv", "")), rank, channel].popleft()
            case "r":
                held[rank, part] = pipes[int(tb.get("recv", "")), rank, channel].popleft()
            case kind:
                assert kind == "nop"
        done[at] += 1
    assert all(done[at] == len(steps) for at, (_, steps) in blocks.items()), "a deadlock"
    assert not any(pipes.values())
    return held


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize(("size", "per_host"), SIZES)
def test_every_rank_ends_with_the_sum_in_whatever_order_and_messages_cross_what_the_cut_counts(
    used: Collective, size: int, per_host: int
) -> None:
    request = summed(used, size)
    program = axis_program(request, per_host)
    algorithm, draw = xml_of(program), Random(size)
    vectors = np.random.default_rng(size).integers(0, 1_000, (size, program.chunks))
    held = run(algorithm, vectors, draw)
    assert (held == vectors.sum(axis=0)).all()
    chunk_bytes, zone_draw = program.payload_bytes / program.chunks, np.random.default_rng(size)
    for _ in range(3):
        zones = zone_draw.integers(0, 3, size // per_host)
        at = np.repeat(zones, per_host)
        crossed = sum(m.count for m in program.messages() if at[m.src] != at[m.dst]) * chunk_bytes
        counted = sum(sent for _, sent in cut_by_axis(request, per_host, zones))
        assert counted == pytest.approx(crossed)


@pytest.mark.parametrize("used", USED)
def test_the_file_has_what_the_interpreter_reads(used: Collective) -> None:
    algorithm = xml_of(axis_program(summed(used, 16), 8))
    assert {key: algorithm.get(key) for key in ("coll", "ngpus", "inplace", "minBytes")} == {
        "coll": "allreduce",
        "ngpus": "16",
        "inplace": "1",
        "minBytes": "1000",
    }
    assert algorithm.get("name") == "a <b>"
    for gpu in algorithm:
        pairs = Counter(
            (tb.get("send"), tb.get("recv"), tb.get("chan")) for tb in gpu
        )  # one block for each connection
        assert set(pairs.values()) == {1}
        for tb in gpu:
            assert int(tb.get("chan", "")) < int(algorithm.get("nchannels", ""))
            assert [step.get("s") for step in tb] == [str(n) for n in range(len(tb))]
            assert len(tb) <= 256


def test_what_has_no_schedule_is_refused() -> None:
    wide, alone = summed(Collective.RING, 256), Request(Parallelism(tp=8), (("tp", 1),))
    roles = Request(Parallelism(dp=2), roles=(GangRole("a", alone),))
    for request, field, message in (
        (summed(Collective.HIERARCHICAL, 8), "collectives.dp", "depends on domains"),
        (wide, "parallelism.dp", "groups of 256 ranks"),
        (alone, "parallelism.dp", "nothing is sent"),
        (roles, "roles", "several roles"),
    ):
        with pytest.raises(BadInput) as refused:
            axis_program(request, 8)
        assert refused.value.field == field
        assert message in refused.value.message


@pytest.mark.parametrize("used", USED)
def test_played_in_its_order_it_sends_the_same_bytes_and_takes_about_as_long(
    used: Collective,
) -> None:
    network, request = fabric(2, 2, 4, gpus=1, oversubscription=2), summed(used, 16)
    tasks = scheduled_tasks(network, request, range(16))
    sent = sum(float(task.exchange.bytes.sum()) for task in tasks.tasks if task.exchange)
    load = axis_loads(network, request, range(16))[-1]
    assert sent == pytest.approx(load.bytes_per_gpu * 16)
    played_s = play(network, tasks).seconds
    assert 0.7 * load.seconds < played_s < 1.5 * load.seconds  # rounds of pieces overlap
