"""Questions have threads of their own, and a process where they keep coming."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from placement.solver import ColumnLp, IntegerProgram
from scheduler.core import Plan, SchedulingOptions, State, decide, replay
from scheduler.core.model.events import Event, FabricChanged, JobSubmitted
from scheduler.engine.mirror import StateMirror, _rows
from scheduler.engine.planning.executor import PlanExecutor
from scheduler.eventlog.codec import encode
from scheduler.identity import Caller, Role, act_for, caller
from scheduler.service.errors import ApiError, not_found
from scheduler.service.questions import PATIENCE_S, Questions
from tests.build import fabric, loaded, spec
from tests.serving import RUNNING, create, serving
from tests.waiting import until, wait_until

LONG_S = 120.0


def seen(state: State, word: str) -> tuple[int, int, str, str]:
    """Where it was computed, on what, for whom."""
    return os.getpid(), state.version, caller().name, word


def missing(state: State) -> None:
    raise not_found("job", "x")


def odd(state: State) -> None:
    raise UnicodeDecodeError("utf-8", b"x", 0, 1, "no reason")


class Unpicklable(Exception):
    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")


def unpicklable(state: State) -> None:
    raise Unpicklable("a", "b")


def runs_dry(state: State) -> object:
    return next(iter(()))


def ends(state: State, pid: int) -> str:
    """Ends the process that it should be computed in."""
    if os.getpid() != pid:
        os._exit(1)
    return "answered"


def lasts(state: State, until: Path) -> int:
    """Computes until a file is there."""
    ends_s = time.monotonic() + LONG_S
    while not until.exists() and time.monotonic() < ends_s:
        time.sleep(0.01)
    return os.getpid()


@pytest.fixture(scope="module")
def mirror() -> Iterator[StateMirror]:
    """A process that is up, for all tests that leave it so."""
    mirror = StateMirror("tests")
    mirror.start()
    wait_until(mirror.is_up)
    yield mirror
    mirror.close()


@pytest.fixture
async def questions(mirror: StateMirror) -> AsyncIterator[Questions]:
    """With that process."""
    questions = Questions(has_process=True)
    questions.mirror = mirror
    mirror.forget(loaded(fabric()))
    yield questions
    questions.mirror = StateMirror("tests")
    questions.close()


async def _in_process(questions: Questions, state: State | None) -> int:
    """The process that answers, once there is one."""
    assert state is not None
    answer = await until(
        lambda: questions.ask_on(state, seen, ""), lambda answer: answer[0] != os.getpid()
    )
    return answer[0]


async def test_the_process_answers_on_the_state_and_for_the_caller(questions: Questions) -> None:
    state = questions.mirror.newest
    act_for(Caller("ada", Role.VIEWER, "nlp"))
    for number in range(3):
        events: list[Event] = [JobSubmitted(1, f"u{number}", spec(f"j{number}", 2), "")]
        state = replay(events, state)
        questions.mirror.follow(events, state)
        pid, *answer = await questions.ask_on(state, seen, "word")
        assert pid != os.getpid()
        assert answer == [state.version, "ada", "word"]


async def test_a_question_is_about_the_state_of_its_time_or_one_that_only_might_be(
    questions: Questions,
) -> None:
    before = questions.mirror.newest
    asked = asyncio.ensure_future(questions.ask_on(before, seen, ""))
    await asyncio.sleep(0)
    events: list[Event] = [JobSubmitted(1, "u", spec("j", 2), "")]
    later = replay(events, before)
    might_be = await questions.ask_on(later, seen, "")
    assert might_be[:2] == (os.getpid(), later.version)
    questions.mirror.follow(events, later)
    assert (await asked)[1] == before.version


async def test_what_the_computation_raises_comes_through(questions: Questions) -> None:
    state = questions.mirror.newest
    with pytest.raises(ApiError) as refusal:
        await questions.ask_on(state, missing)
    assert refusal.value.status() == not_found("job", "x").status()
    with pytest.raises(UnicodeDecodeError, match="no reason"):
        await questions.ask_on(state, odd)
    with pytest.raises(RuntimeError, match="Unpicklable: a: b"):
        await questions.ask_on(state, unpicklable)
    async with asyncio.timeout(60):  # in the process, and in a thread
        with pytest.raises(RuntimeError, match="without an answer"):
            await questions.ask_on(state, runs_dry)
        with pytest.raises(RuntimeError, match="without an answer"):
            await questions.ask(next, iter(()))
    assert (await questions.ask_on(state, seen, ""))[0] != os.getpid()


async def test_a_process_that_dies_loses_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions, state = Questions(has_process=True, start_s=0.0), loaded(fabric())
    questions.mirror.forget(state)
    await _in_process(questions, state)
    with caplog.at_level(logging.WARNING):
        answers = (questions.ask_on(state, ends, os.getpid()) for _ in range(3))
        assert await asyncio.gather(*answers) == ["answered"] * 3
    assert caplog.text.count("the process for questions has ended") == 1
    await _in_process(questions, state)  # and a new one follows, which ends with the server
    process = questions.mirror.process
    assert process is not None
    asked = asyncio.ensure_future(questions.ask_on(state, lasts, tmp_path / "never"))
    await until(questions._turn.locked)
    questions.close()
    async with asyncio.timeout(LONG_S / 2):
        await asyncio.wait({asked})
    assert type(asked.exception()).__name__ == "WriterStopped"
    assert process.poll() is not None


async def test_threads_answer_while_a_long_question_keeps_the_process(
    questions: Questions, tmp_path: Path
) -> None:
    state = questions.mirror.newest
    may_end = tmp_path / "may-end"
    long = asyncio.ensure_future(questions.ask_on(state, lasts, may_end))
    await until(questions._turn.locked)
    assert (await questions.ask_on(state, seen, ""))[0] == os.getpid()  # after PATIENCE_S
    waited_s = time.monotonic()
    for _ in range(20):  # now it is known that the process takes long: nobody else waits for it
        assert (await questions.ask_on(state, seen, ""))[0] == os.getpid()
    assert time.monotonic() - waited_s < 20 * PATIENCE_S
    assert not long.done()
    may_end.touch()
    assert await long != os.getpid()


async def test_a_process_that_nobody_asks_ends() -> None:
    questions = Questions(has_process=True, start_s=0.0, idle_s=0.3)
    questions.mirror.forget(loaded(fabric()))
    try:
        await questions.ask_on(loaded(fabric()), seen, "")
        process = questions.mirror.process
        assert process is not None
        await until(lambda: questions.mirror.process is None)
        assert process.poll() is not None
    finally:
        questions.close()


async def test_few_questions_start_no_process() -> None:
    questions = Questions(has_process=True)
    state = loaded(fabric())
    questions.mirror.forget(state)
    try:
        for _ in range(5):
            assert (await questions.ask_on(state, seen, ""))[0] == os.getpid()
        assert questions.mirror.process is None
        questions._spent_s = 1.0
        await questions.ask_on(state, seen, "")
        assert questions.mirror.process is not None
    finally:
        questions.close()


def test_ctrl_c_is_not_for_the_process(mirror: StateMirror) -> None:
    """A terminal sends it to the whole group of the server's process, also while Python starts."""
    assert mirror.process is not None
    pid = mirror.process.pid
    assert os.getpgid(pid) == pid != os.getpgid(0)
    assert os.getsid(pid) == os.getsid(0)  # else its niceness would count for nothing beside ours


# --- solvers in a process ------------------------------------------------------------


def solve_linear_programs() -> None:
    program = ColumnLp()
    program.add_rows(np.ones(40), np.full(40, inf))
    program.add_columns(np.ones(40), np.eye(40, dtype=np.int64))
    for k in range(200):
        program.add_columns(np.array([0.99 - k / 1000]), np.ones((1, 40), dtype=np.int64))
        assert program.solve() is not None


def solve_integer_programs() -> None:
    for least in range(1, 33):
        program = IntegerProgram()
        x, y = program.variable(4, 2), program.variable(4, 3)
        program.row(least, 100, [(x, 3), (y, 5)])
        assert program.solve(1) is not None


@pytest.mark.parametrize("solve", [solve_linear_programs, solve_integer_programs])
def test_every_ctrl_c_is_heard_while_programs_are_solved_side_by_side(
    solve: Callable[[], None],
) -> None:
    sent = heard = 0

    def hear(*_: object) -> None:
        nonlocal heard
        heard += 1

    before = signal.signal(signal.SIGINT, hear)
    try:
        with ThreadPoolExecutor(2) as pool:
            busy = [pool.submit(solve) for _ in range(6)]
            while not all(each.done() for each in busy):
                signal.raise_signal(signal.SIGINT)
                sent += 1
                time.sleep(0.001)
            for each in busy:
                each.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == sent > 0


def test_solvers_print_nothing_and_load_no_pandas() -> None:
    """In a process of their own: banners come once."""
    script = (
        "import sys\n"
        "import numpy as np\n"
        "from placement.solver import ColumnLp, IntegerProgram\n"
        "linear, integer = ColumnLp(), IntegerProgram()\n"
        "linear.add_rows(np.ones(2), np.ones(2))\n"
        "integer.row(1, 2, [(integer.variable(2, 1), 1)])\n"
        "assert linear.solve() and integer.solve(1)\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- decisions in a process of their own -------------------------------------------------------


LIMITS = SchedulingOptions()
ALWAYS = 0.0


@pytest.fixture
def here() -> Mock:
    """Decisions that are made in the thread."""
    return Mock(side_effect=lambda state, now_ns: decide(state, now_ns, LIMITS))


@pytest.fixture
async def executor(here: Mock) -> AsyncIterator[PlanExecutor]:
    executor = PlanExecutor(here, LIMITS, lambda _: None, ALWAYS)
    executor.mirror.forget(loaded(fabric()))
    await executor.decide(loaded(fabric()), 0)  # long, hence a process from now on
    await _until_up(executor)
    yield executor
    executor.close()


async def _until_up(executor: PlanExecutor) -> subprocess.Popen[bytes]:
    """Its process, once it answers."""
    await until(executor.mirror.is_up)
    assert executor.mirror.process is not None
    return executor.mirror.process


def _events(count: int, first: int = 0) -> list[Event]:
    numbers = range(first, first + count)
    return [JobSubmitted(1, f"u{n}", spec(f"j{n}", 2), f"r{n}") for n in numbers]


async def test_the_plans_are_those_of_the_thread(executor: PlanExecutor, here: Mock) -> None:
    """Also on another fabric, and of what happens before an answer is awaited."""
    state = loaded(fabric())
    for hosts in (0, 3, 2, 4):
        changed = [FabricChanged(1, fabric(hosts=hosts).spec)] if hosts else []
        state = replay(events := [*changed, *_events(2, 10 * hosts)], state)
        executor.mirror.follow(events, state)
        answer = executor.decide(state, 5)
        later = replay(more := _events(1, 10 * hosts + 2), state)
        executor.mirror.follow(more, later)
        assert await answer == decide(state, 5, LIMITS)
        assert await executor.decide(later, 5) == decide(later, 5, LIMITS)
        state = later
    assert here.call_count == 1
    process = await _until_up(executor)
    assert executor.mirror._link is not None
    executor.mirror._link.close()  # as when the server is killed
    assert await asyncio.to_thread(process.wait, 30) == 0


async def test_a_process_that_dies_costs_no_decision(
    executor: PlanExecutor, here: Mock, caplog: pytest.LogCaptureFixture
) -> None:
    state = replay(events := _events(3), loaded(fabric()))
    executor.mirror.follow(events, state)
    process = await _until_up(executor)
    process.kill()
    process.wait()
    with caplog.at_level(logging.WARNING):
        assert await executor.decide(state, 5) == decide(state, 5, LIMITS)
    assert "the process for decisions has ended" in caplog.text
    assert here.call_count == 2
    await _until_up(executor)  # and a new one follows
    assert await executor.decide(state, 5) == decide(state, 5, LIMITS)
    assert here.call_count == 2


async def test_a_process_that_lost_count_costs_no_decision_and_begins_again(
    executor: PlanExecutor, here: Mock, caplog: pytest.LogCaptureFixture
) -> None:
    state = loaded(fabric())
    assert await executor.decide(state, 5) == decide(state, 5, LIMITS)
    later = replay(_events(2), state)  # of which it is not told
    with caplog.at_level(logging.INFO):
        assert await executor.decide(later, 5) == decide(later, 5, LIMITS)
    assert "lacks a state: asked about version 3 at version 1" in caplog.text
    assert here.call_count == 2
    latest = replay(events := _events(1, 7), later)
    executor.mirror.follow(events, latest)  # not from where it was
    assert await executor.decide(latest, 5) == decide(latest, 5, LIMITS)
    assert here.call_count == 2


async def test_a_server_that_always_takes_the_process_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[str](), StateMirror.ask

    def counted(self: StateMirror, *arguments: Any) -> Any:
        asked.append("plan")
        return ask(self, *arguments)

    monkeypatch.setattr(StateMirror, "ask", counted)
    async with serving(tmp_path, long_decision_s=ALWAYS) as served:
        for i in range(4):
            await served.stub.CreateJob(create(f"j{i}", 2))
        for i in range(4):
            await served.until(f"j{i}", RUNNING)
        for number in range(600):  # until the process is up, and takes a decision
            if asked:
                break
            await served.stub.CreateJob(create(f"more{number}"))
            await asyncio.sleep(0.05)
    assert asked


async def test_short_decisions_leave_the_thread_to_calls_while_many_come() -> None:
    def spins(state: State, now_ns: int) -> Plan:
        until_s = time.thread_time() + 0.01
        while time.thread_time() < until_s:
            pass
        return Plan(state.version)

    executor = PlanExecutor(spins, LIMITS, lambda _: None, long_s=1.0)
    await executor.decide(loaded(fabric()), 0)
    assert executor.mirror.process is None
    lasted_s = []
    for is_busy in (True, False):
        began_s = time.monotonic()
        await executor.pace_decisions(is_busy=is_busy)
        lasted_s.append(time.monotonic() - began_s)
    assert lasted_s[0] >= 0.09 > 0.01 > lasted_s[1]
    executor.close()


def test_events_told_in_pieces_are_all_told_and_in_order() -> None:
    events = tuple(JobSubmitted(n, f"u{n}", spec(f"j{n}")) for n in range(250))
    assert _rows(events) == tuple(map(encode, events))
    assert _rows(()) == ()
