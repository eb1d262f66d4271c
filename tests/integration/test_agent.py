"""An agent with real processes, and a test in place of the server."""

import asyncio
import errno
import json
import os
import pwd
import select
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.agent.agent import Agent, StaleLeader
from scheduler.agent.checks.prober import HostProber
from scheduler.agent.program import _may_leave_processes
from scheduler.agent.ranks.allow import AllowList
from scheduler.agent.ranks.attempt import BadReport, _read_report
from scheduler.agent.ranks.supervisor import begun, children
from scheduler.files.errors import InputError
from scheduler.v1 import agent_pb2
from tests.waiting import until

ME = pwd.getpwuid(os.geteuid()).pw_name
ALLOWED = AllowList(frozenset({ME}), ME)
Response = agent_pb2.SessionResponse


class Server:
    """Says what a server would, and waits for what the agent says."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.heard: asyncio.Queue[agent_pb2.SessionRequest] = asyncio.Queue()
        agent.say = self.heard.put_nowait

    async def until(self, kind: str) -> Any:
        async with asyncio.timeout(60):
            while True:
                word = await self.heard.get()
                if word.WhichOneof("message") == kind:
                    return getattr(word, kind)

    def prepare(self, *command: str, attempt: int = 1, ranks: int = 2, **more: Any) -> None:
        wanted = agent_pb2.Prepare(key=key(attempt), job="a", command=command, workdir="/tmp")
        wanted.nodes, wanted.ranks, wanted.world_size = 1, ranks, ranks
        wanted.MergeFrom(agent_pb2.Prepare(**more))
        self.agent.hear(Response(prepare=wanted))

    async def launch(
        self,
        *command: str,
        attempt: int = 1,
        copies: tuple[list[int], list[int]] = ([], []),
        **more: Any,
    ) -> None:
        """Until the ranks have started. `copies`: nodes that keep some here, and whose are kept."""
        self.prepare(*command, attempt=attempt, **more)
        ready = await self.until("prepared")
        launch = agent_pb2.Launch(key=key(attempt), copy_to=copies[0], copy_of=copies[1])
        launch.master_address, launch.master_port = ready.address, ready.port
        self.agent.hear(Response(launch=launch))
        await self.until("started")

    async def warm(self, interpreter: str, *modules: str) -> None:
        """Until a process has imported the modules."""
        self.agent.hear(Response(warm=agent_pb2.Warm(interpreter=interpreter, modules=modules)))
        (process,) = self.agent._warm.values()
        await until(lambda: select.select([process.stdout], [], [], 0)[0])

    def lease(self, ttl_ms: int, *, keeps_ranks: bool = False) -> None:
        word = agent_pb2.Lease(epoch=1, keeps_ranks=keeps_ranks)
        word.ttl.FromMilliseconds(ttl_ms)
        self.agent.hear(Response(lease=word))

    def stop(self, attempt: int = 1, grace_s: int = 0) -> None:
        word = agent_pb2.Stop(key=key(attempt))
        word.grace.FromSeconds(grace_s)
        self.agent.hear(Response(stop=word))


def key(attempt: int = 1) -> agent_pb2.AttemptKey:
    return agent_pb2.AttemptKey(job_uid="uid", attempt=attempt)


@asynccontextmanager
async def running(folder: Path, allowed: AllowList = ALLOWED) -> AsyncIterator[Server]:
    # Its name names its cgroup: tests run beside each other.
    agent = Agent(f"h{os.getpid()}", folder, "127.0.0.1", allowed)
    working = asyncio.create_task(agent.run())
    await asyncio.sleep(0)
    try:
        yield Server(agent)
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path) as made:
        yield made


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", text)


SLEEP = python("import time; time.sleep(60)")
WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"


def log(folder: Path, rank: int, attempt: int = 1) -> str:
    return (folder / "attempts" / f"uid.{attempt}" / "logs" / f"rank-{rank}.log").read_text()


def supervisor_pid(folder: Path, attempt: int = 1) -> int:
    return int((folder / "attempts" / f"uid.{attempt}" / "supervisor").read_text().split()[0])


def pids(folder: Path, attempt: int = 1) -> list[int]:
    text = (folder / "attempts" / f"uid.{attempt}" / "started").read_text()
    return [pid for pid, _ in json.loads(text).values()]


async def test_ranks_find_their_place_in_the_environment(tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE MUSTER_JOB MUSTER_ATTEMPT A USER"
    names += " MUSTER_COPY_TO MUSTER_COPY_OF MUSTER_TOKEN"
    show = f"import os; print(*map(os.environ.get, '{names}'.split()), os.getcwd())"
    async with running(tmp_path) as server:
        await server.launch(*python(show), env={"A": "b"}, copies=([3, 7], [5]))
        exits = [await server.until("exited") for _ in range(2)]
        assert [(done.code, done.signal) for done in exits] == [(0, 0), (0, 0)]
        await server.until("stopped")
        await server.launch(*python(show + "; os.sys.exit('no memory')"), ranks=1, attempt=2)
        done = await server.until("exited")
        assert (done.rank, done.code) == (0, 1)
    for rank in range(2):
        line = log(tmp_path, rank).split()
        assert line == [str(rank), str(rank), "2", "a", "1", "b", ME, "3,7", "5", "None", "/tmp"]
    line = f"0 0 1 a 2 None {ME} None None None /tmp"
    assert sorted(done.log_tail.splitlines()) == [line, "no memory"]


async def test_a_launch_waits_for_no_probe_and_the_host_is_probed_again_after_it(
    tmp_path: Path,
) -> None:
    hangs, goes_on = tmp_path / "hangs", tmp_path / "goes on"
    program = f"""
import os, time
open({str(hangs)!r}, "a").write("x")
while not os.path.exists({str(goes_on)!r}):
    time.sleep(0.01)
print('{{"readings": "8 GPUs", "findings": []}}')
"""
    order = agent_pb2.ProbeHost(gpus=8)
    order.every.FromSeconds(3_600)
    async with running(tmp_path / "agent") as server:
        server.agent.prober = HostProber(tmp_path / "memory", python(program))
        server.agent.hear(Response(probe_host=order))
        await until(lambda: hangs.exists() and hangs.read_text())
        await server.launch(*python("pass"), ranks=1)
        await server.until("stopped")
        assert hangs.read_text() == "x"  # which has not ended: no other is begun beside it
        goes_on.touch()
        assert (await server.until("host_probed")).readings == "8 GPUs"
        assert (await server.until("host_probed")).readings == "8 GPUs"
        assert hangs.read_text() == "xx"


def gate(*command: str, is_of_site: bool = False, limit_s: int = 60) -> agent_pb2.Gate:
    made = agent_pb2.Gate(command=command, is_of_site=is_of_site)
    made.limit.FromSeconds(limit_s)
    return made


async def test_ranks_start_behind_their_gates_alone(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    show = f"import os; open({str(trace)!r}, 'a').write(os.environ['A'] + os.environ['NODE_RANK'])"
    fail = gate(*python("import sys; print('x\\ny'); sys.exit(3)"))
    hang = python("import os, time; os.fork(); time.sleep(600)")
    async with running(tmp_path / "agent") as server:
        gates = [gate(*python(show), is_of_site=True), gate(*python(show))]
        await server.launch(*python("pass"), env={"A": "b"}, gates=gates)
        assert trace.read_text() == "b0b0"
        await server.until("stopped")
        for attempt, closed, is_unfit, words in (
            (2, fail, False, "exited with code 3: x / y"),
            (3, gate(*hang, is_of_site=True, limit_s=1), True, "took longer than 1 s"),
            (4, gate("no-such", is_of_site=True), False, "there is no program no-such"),
        ):
            server.prepare("true", attempt=attempt, gates=[closed])
            word = await server.until("refused")
            assert (word.is_unfit, word.reason.endswith(words)) == (is_unfit, True), word


async def test_a_rank_that_ends_before_the_agent_looks_has_started(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.agent, "_look", lambda: None)
    server.prepare(*python(""), ranks=1)
    ready = await server.until("prepared")
    launch = agent_pb2.Launch(key=key(1), master_address=ready.address, master_port=ready.port)
    server.agent.hear(Response(launch=launch))
    exits = tmp_path / "attempts" / "uid.1" / "exits"
    await until(lambda: exits.exists() and "over" in exits.read_text())
    Agent._look(server.agent)
    words = [server.heard.get_nowait().WhichOneof("message") for _ in range(4)]
    assert words == ["started", "progress", "exited", "stopped"]


async def test_no_process_of_an_attempt_survives_its_end(server: Server, tmp_path: Path) -> None:
    """Not even one that has a session of its own, and has closed everything."""
    leave = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
    leave += "  print(os.getpid(), flush=True)\n  time.sleep(60)\ntime.sleep(60)"
    await server.launch(*python(leave), ranks=1)
    child = int(await until(lambda: log(tmp_path, 0).strip()))
    assert begun(child)
    server.stop()
    await server.until("stopped")
    assert not begun(child)


async def test_a_rank_may_end_by_itself_within_its_grace(server: Server, tmp_path: Path) -> None:
    tidy = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    tidy += "print('ready', flush=True)\ntime.sleep(60)"
    await server.launch(*python(tidy), ranks=1)
    await until(lambda: "ready" in log(tmp_path, 0))
    server.stop(grace_s=30)
    done = await server.until("exited")
    assert (done.code, done.signal) == (0, 0)


async def test_a_successor_starts_when_nothing_of_the_old_attempt_is_left(
    server: Server, tmp_path: Path
) -> None:
    stubborn = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    await server.launch(*python(stubborn))
    old = pids(tmp_path)
    await server.launch(*SLEEP, attempt=2)
    assert not any(map(begun, old))
    server.stop(2)
    await server.until("stopped")


async def test_the_same_word_twice_does_what_once_does(server: Server, tmp_path: Path) -> None:
    await server.launch(*SLEEP)
    before = pids(tmp_path)
    server.prepare("other")
    again = await server.until("prepared")
    server.agent.hear(Response(launch=agent_pb2.Launch(key=key(), master_port=again.port)))
    await server.until("started")
    assert pids(tmp_path) == before
    server.stop()
    server.stop()
    await server.until("stopped")
    server.stop()
    await server.until("stopped")


async def test_what_the_host_does_not_allow_is_refused(server: Server, tmp_path: Path) -> None:
    """So is what cannot be executed, and no rank has failed."""
    server.prepare("true", user="nobody-here")
    reason = "nothing runs as nobody-here on this host"
    assert (await server.until("refused")).reason == reason
    server.prepare("no-such-program", attempt=2)
    assert (await server.until("refused")).reason == "there is no program no-such-program"
    server.prepare("true", attempt=3, workdir="/tmp\0/etc")
    assert (await server.until("refused")).reason == "embedded null byte"
    (tmp_path / "train").write_text("no program")
    server.prepare(str(tmp_path / "train"), attempt=4)
    await server.until("prepared")
    server.agent.hear(Response(launch=agent_pb2.Launch(key=key(4))))
    reason = f"cannot execute {tmp_path}/train: Permission denied"
    assert (await server.until("refused")).reason == reason
    assert not any(status.exits for status in server.agent.hello().hello.attempts)


async def test_an_agent_finds_its_ranks_and_their_exits_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with running(tmp_path / "s") as server:
        server.lease(60_000)
        await server.launch(*python(WAIT + "sys.exit(3)"), str(flag), ranks=1)
    flag.touch()
    async with running(tmp_path / "s") as server:
        (status,) = await until(
            lambda: server.agent.hello().hello.attempts,
            lambda attempts: attempts[0].phase == agent_pb2.ATTEMPT_PHASE_STOPPED,
        )
        assert [(done.rank, done.code) for done in status.exits] == [(0, 3)]
        server.agent.hear(Response(forget=agent_pb2.Forget(key=key())))
        assert not server.agent.hello().hello.attempts
    async with running(tmp_path / "s") as server:
        assert not server.agent.hello().hello.attempts


async def test_ranks_end_with_a_supervisor_that_is_killed(server: Server, tmp_path: Path) -> None:
    await server.launch(*SLEEP)
    ranks = pids(tmp_path)
    os.kill(supervisor_pid(tmp_path), signal.SIGKILL)
    done = await server.until("exited")
    assert done.signal == signal.SIGKILL
    await server.until("stopped")
    assert not any(map(begun, ranks))


async def test_ranks_run_on_after_their_lease_where_the_server_says_so(tmp_path: Path) -> None:
    """Through the end of the agent as well; what they did is told, and orders end them."""
    async with running(tmp_path) as server:
        server.lease(100, keeps_ranks=True)
        await server.launch(*SLEEP)
        ranks = pids(tmp_path)
        await until(lambda: server.agent._has_lapsed)
    async with running(tmp_path) as server:
        await asyncio.sleep(0.4)
        assert all(map(begun, ranks))
        assert server.agent.hello().hello.attempts[0].phase == agent_pb2.ATTEMPT_PHASE_STARTED
        server.prepare("true", attempt=2)  # a newer attempt
        await server.until("prepared")
        assert not any(map(begun, ranks))


async def test_the_last_checkpoint_is_told_by_an_agent_that_starts_after_the_ranks_have_ended(
    tmp_path: Path,
) -> None:
    report = json.dumps({"step": 7, "checkpoint_step": 7, "checkpoint": "/c/7"})
    async with running(tmp_path) as server:
        await server.launch(*python(f"import os; open({OWN_REPORT}, 'w').write({report!r})"))
        await server.until("stopped")
    async with running(tmp_path) as server:
        (status,) = server.agent.hello().hello.attempts
        assert (status.progress.step, status.progress.checkpoint) == (7, "/c/7")


OWN_REPORT = "os.environ['MUSTER_RUN_DIR']+'/progress.'+os.environ['RANK']"
HOSTILE = [
    b'{"step": Infinity}',
    b"[" * 65_536,
    b'{"checkpoint_step": 1, "checkpoint": "\\ud800"}',
    b'{"checkpoint_step": 1, "checkpoint": "/c\\u0000"}',
    b'{"step": ' + b"9" * 60_000 + b"}",
    b"\xff\xfe\xd8",
]


def test_what_is_no_report_is_told_from_one(tmp_path: Path) -> None:
    for words in HOSTILE:
        (tmp_path / "progress.0").write_bytes(words)
        with pytest.raises(BadReport):
            _read_report(tmp_path / "progress.0")


async def test_ranks_that_write_no_reports_end_and_the_agent_does_not(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many of them, with words that say why; others go on."""
    (tmp_path / "hostile").write_bytes(HOSTILE[0])
    new = OWN_REPORT + "+'.new'"
    copy = f"shutil.copy('{tmp_path}/hostile', {new}); os.replace({new}, {OWN_REPORT})"
    loop = f"import os,shutil,time\nwhile True: {copy}; time.sleep(0.002)"
    monkeypatch.setattr("scheduler.agent.agent._TICK_S", 0.002)
    await server.launch(*python(loop), ranks=1)
    while not (await server.until("progress")).unreadable:  # which the server counts
        pass
    done = await server.until("exited")
    assert done.signal == signal.SIGKILL
    assert done.log_tail.startswith("rank 0 wrote what is no report of muster.progress")
    await server.launch(*python("pass"), attempt=2, ranks=1)
    assert (await server.until("exited")).code == 0


# Processes that fork and exit for as long as 20 s; one that is left holds the pipe open.
CHAINS = """
import os, time
pipe, end = os.open({!r}, os.O_WRONLY), time.monotonic() + 20
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end and os.fork() == 0:
            {}
        os._exit(0)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["of one group", "of many", "without supervisor"])
async def test_nothing_is_left_of_processes_that_fork_and_exit_where_there_is_no_cgroup(
    tmp_path: Path, kind: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    step = "os.setsid()" if kind == "of many" else "pass"
    before = children()
    async with running(tmp_path / "state") as server:
        server.agent._cgroups.path = None
        await server.launch(*python(CHAINS.format(str(pipe), step)), ranks=1)
        await asyncio.sleep(0.2)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
        if kind == "without supervisor":
            os.kill(supervisor_pid(tmp_path / "state"), signal.SIGKILL)
        server.stop()
        await server.until("stopped")
        assert os.read(reader, 1) == b""  # nobody has it open
        assert {*children()} <= {*before, supervisor_pid(tmp_path / "state")}  # no zombies
    os.close(reader)


async def test_a_host_that_may_keep_processes_starts_gangs_of_one_tenant_until_it_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):  # also through a restart of the agent
        async with running(tmp_path) as server:
            server.agent.may_leave_processes = True
            assert server.agent.hello().hello.may_leave_processes
            server.prepare(*python("pass"), tenant="vision")
            await server.until("prepared")
            server.prepare(*python("pass"), attempt=2, tenant="nlp")
            refused = await server.until("refused")
            assert refused.is_passing
            assert "vision" not in refused.reason
            assert "once it has booted" in refused.reason
    monkeypatch.setattr("scheduler.agent.agent._boot_id", lambda: "another")
    for attempt, tenant in ((3, "nlp"), (4, "vision")):
        monkeypatch.setenv("SLURM_STEP_ID", str(attempt))  # with a step its processes end
        async with running(tmp_path) as server:
            server.agent.may_leave_processes = True
            server.prepare(*python("pass"), attempt=attempt, tenant=tenant)
            await server.until("prepared")


def test_an_agent_that_is_root_refuses_a_host_without_cgroups_unless_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, allowed = Agent("h", tmp_path, "127.0.0.1", ALLOWED), ALLOWED
    agent._cgroups.path = None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InputError, match=r"no cgroup v2 .* `without_cgroups: true`"):
        _may_leave_processes(agent, allowed)
    assert not _may_leave_processes(agent, replace(allowed, without_cgroups=True))
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert _may_leave_processes(agent, allowed)
    agent._cgroups.path = tmp_path
    assert not _may_leave_processes(agent, allowed)
    agent._socket.close()


async def test_a_full_disk_ends_no_agent_and_loses_no_exit(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    server.lease(60_000)
    flag = tmp_path / "flag"
    await server.launch(*python(WAIT), str(flag), ranks=1)
    os.close(os.open(flag, os.O_CREAT))
    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(Path, "touch", full)
    server.lease(60_000)
    assert (await server.until("exited")).code == 0
    await server.until("stopped")


async def test_a_lease_outlives_the_agent(tmp_path: Path) -> None:
    """One that starts again while its host is cut off ends the ranks when the lease does."""
    async with running(tmp_path) as server:
        await server.launch(*SLEEP)
        ranks = pids(tmp_path)
        server.lease(200)
    assert all(map(begun, ranks))
    async with running(tmp_path) as server:
        await server.until("stopped")
        assert not any(map(begun, ranks))


async def test_what_was_said_before_a_lease_ended_is_not_done_any_more(server: Server) -> None:
    server.lease(100)
    server.prepare("true")
    await server.until("prepared")
    async with asyncio.timeout(60):
        await server.agent.has_expired.wait()
    for word in (
        Response(launch=agent_pb2.Launch(key=key())),
        Response(lease=agent_pb2.Lease()),
    ):
        with pytest.raises(StaleLeader, match="its lease has ended"):
            server.agent.hear(word)
    assert server.agent.hello().hello.attempts[0].phase == agent_pb2.ATTEMPT_PHASE_PREPARED
    server.lease(60_000)  # a new stream
    server.agent.hear(Response(launch=agent_pb2.Launch(key=key())))
    await server.until("started")


async def test_an_agent_is_idle_when_its_ranks_have_ended(server: Server) -> None:
    await server.launch(*SLEEP)
    waiting = asyncio.create_task(server.agent.is_idle())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    server.stop()
    async with asyncio.timeout(60):
        await waiting


async def test_a_leader_of_a_lower_term_is_not_heard(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        server.agent.hear(Response(lease=agent_pb2.Lease(epoch=5)))
        with pytest.raises(StaleLeader):
            server.agent.hear(Response(lease=agent_pb2.Lease(epoch=4)))
    async with running(tmp_path) as server:
        with pytest.raises(StaleLeader):
            server.agent.hear(Response(lease=agent_pb2.Lease(epoch=4)))


async def test_what_ranks_say_gets_to_the_server(tmp_path: Path) -> None:
    say = "import sys, time\nsys.path.insert(0, sys.argv[1])\nfrom muster import progress\n"
    say += "progress.resume()\nprogress.report(7)\n"
    say += "while not progress.should_save(): time.sleep(0.01)\n"
    say += "with progress.saving(sys.argv[2], 8): pass\n"
    root = str(Path(__file__).parents[2])
    async with running(tmp_path / "s") as server:

        async def said(holds: Callable[[Any], bool]) -> Any:
            return await until(lambda: server.until("progress"), holds)

        await server.launch(*python(say), root, str(tmp_path / "c"), ranks=1)
        assert (await said(lambda word: word.step == 7)).can_save
        server.agent.hear(Response(save_checkpoint=agent_pb2.SaveCheckpoint(key=key())))
        word = await said(lambda word: word.checkpoint != "")
        assert (word.checkpoint_step, Path(word.checkpoint).parts[-1]) == (8, "step-000000000008")


async def test_ranks_of_a_warm_process_that_end_together_lose_no_exit(tmp_path: Path) -> None:
    """The supervisor finds the end of one rank and what another wrote before its end at once."""
    program, folder = tmp_path / "train.py", tmp_path / "s"
    program.write_text(
        "import sys, os, time\nrank = int(os.environ['RANK'])\n"
        "print('decimal' in sys.modules, sys.argv[2:], __name__, flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "time.sleep(rank / 5)\nsys.exit(rank)\n"
    )
    command = (sys.executable, str(program), str(tmp_path / "go"), "--x")
    async with running(folder) as server:
        await server.warm(sys.executable, "decimal")
        await server.launch(*command, warm=["decimal"])
        supervisor, ranks = supervisor_pid(folder), pids(folder)
        os.kill(supervisor, signal.SIGSTOP)
        (tmp_path / "go").touch()
        await until(lambda: not any(map(begun, ranks)))
        os.kill(supervisor, signal.SIGCONT)
        exits = [await server.until("exited") for _ in range(2)]
        await server.until("stopped")
    assert sorted((done.code, done.signal) for done in exits) == [(0, 0), (1, 0)]
    assert log(folder, 1) == "True ['--x'] __main__\n"
    assert (folder / "attempts" / "uid.1" / "supervisor.log").read_text() == ""


async def read_log(server: Server, lines: int, rank: int = 0) -> str:
    wanted, name = agent_pb2.ReadLog(lines=lines, follow=True), f"{rank}/{lines}"
    channel = agent_pb2.OpenChannel(channel_id=name, key=key(), rank=rank, log=wanted)
    server.agent.hear(Response(open_channel=channel))
    pieces = []
    while not (data := await server.until("channel_data")).error:
        if data.HasField("exit_code"):
            break
        pieces.append(data.data)
        server.agent.hear(Response(channel_data=agent_pb2.ChannelData(channel_id=name, taken=1)))
    return b"".join(pieces).decode() + data.error


async def test_a_long_log_turns_over_and_keeps_its_newest_part(
    server: Server, tmp_path: Path
) -> None:
    lines, width = 18_000, 1_000
    text = f"for n in range({lines}): print(str(n).rjust({width - 1}))"
    await server.launch(*python(text), ranks=1)
    await server.until("stopped")
    logs = tmp_path / "attempts" / "uid.1" / "logs"
    sizes = {path.name: path.stat().st_size for path in logs.iterdir()}
    assert sizes["rank-0.log.1"] < 17 << 20
    assert sum(sizes.values()) == lines * width
    assert (await read_log(server, 2)).split() == [str(lines - 2), str(lines - 1)]
    assert (await read_log(server, 0)).split() == [str(n) for n in range(lines)]
    assert "no log of rank 9" in await read_log(server, 3, rank=9)


@pytest.mark.skipif(os.geteuid() != 0, reason="an agent that is not root runs as itself alone")
@pytest.mark.parametrize("warm", [(), ("decimal",)])
async def test_ranks_of_a_root_agent_have_the_rights_of_their_user_alone(
    tmp_path: Path, warm: tuple[str, ...]
) -> None:
    interpreter = shutil.which("python3", path="/usr/bin:/bin")
    if interpreter is None:
        pytest.skip("no Python that every user may run")
    user = pwd.getpwnam("nobody")
    tmp_path.chmod(0o711)
    program = Path("/tmp") / f"muster-rights-{os.getpid()}.py"
    program.write_text(SHOW_RIGHTS)
    program.chmod(0o644)
    before = os.getgroups()
    os.setgroups([0, 4, 27])  # of the agent; ranks must not have them
    allowed = AllowList(frozenset({"nobody"}), "nobody")
    for path in [tmp_path, *tmp_path.parents][:3]:
        path.chmod(path.stat().st_mode | 0o011)  # a user must be able to reach its run folder
    try:
        async with running(tmp_path / "s", allowed) as server:
            if warm:
                await server.warm(interpreter, *warm)
            command = (interpreter, str(program))
            await server.launch(*command, ranks=1, warm=warm)
            done = await server.until("exited")
            await server.until("stopped")
            shown = json.loads(log(tmp_path / "s", 0))
    finally:
        os.setgroups(before)
        program.unlink()
    assert done.code == 0
    assert shown == {
        "uids": [user.pw_uid] * 3,
        "gids": [user.pw_gid] * 3,
        "groups": sorted(os.getgrouplist("nobody", user.pw_gid)),
        "regained": False,
        "NoNewPrivs": "1",
        "CapEff": "0000000000000000",
        "may_read_order": False,
        "may_write_log": False,
        "HOME": user.pw_dir,
        "is_warm": bool(warm),
    }


SHOW_RIGHTS = """
import json, os, sys
is_warm = "decimal" in sys.modules
status = dict(row.split(":\t", 1) for row in open("/proc/self/status").read().splitlines())
try:
    os.setuid(0)
    regained = True
except PermissionError:
    regained = False
attempt = os.path.dirname(os.environ["MUSTER_RUN_DIR"])
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()),
    "regained": regained, "NoNewPrivs": status["NoNewPrivs"].strip(),
    "CapEff": status["CapEff"].strip(),
    "may_read_order": os.access(attempt + "/order.json", os.R_OK),
    "may_write_log": os.access(attempt + "/logs/rank-0.log", os.W_OK),
    "HOME": os.environ["HOME"], "is_warm": is_warm,
}))
"""


async def test_ranks_cannot_have_the_agent_write_elsewhere(tmp_path: Path) -> None:
    """What lies in their folder is theirs: links there are not followed."""
    outside, folder = tmp_path / "outside", tmp_path / "s"
    plant = "import os, sys, time\n"
    plant += "os.symlink(sys.argv[1], os.environ['MUSTER_RUN_DIR'] + '/save')\n"
    plant += "print('ready', flush=True)\ntime.sleep(60)"
    async with running(folder) as server:
        await server.launch(*python(plant), str(outside), ranks=1)
        await until(lambda: "ready" in log(folder, 0))
        server.agent.hear(Response(save_checkpoint=agent_pb2.SaveCheckpoint(key=key())))
        assert not outside.exists()
        server.stop()
        await server.until("stopped")
