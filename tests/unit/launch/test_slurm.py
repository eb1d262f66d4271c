"""Allocations and steps of agents on a Slurm that is a table: what is asked for, and when."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.agent.ranks.containers import container_key
from scheduler.core.model.commands import MoveHost, RemoveWindow
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.state import State
from scheduler.core.model.window import Leave
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.files.health.found import NodeState
from scheduler.launch.keys import HoldingScope, SlurmKeys, StepScope
from scheduler.launch.slurm.agents import WHOLE, AgentStep, SlurmAgents
from scheduler.launch.slurm.commands import (
    Partition,
    SlurmCommands,
    SlurmFailed,
    SlurmJob,
    agent_step,
    allocation,
    container_options,
    own_name,
    read_gpus,
    read_job,
    read_reservation,
    run_command,
)
from scheduler.launch.slurm.refusals import Refusals
from tests.build import fabric, fail, loaded, run

ME = own_name()


def test_an_allocation_names_its_hosts_and_outlives_any_of_them() -> None:
    words = allocation("muster:u", ["n2", "n7"], ["--partition=gpu"])
    assert words[:2] == ["salloc", "--no-shell"]
    assert {"--nodes=2", "--nodelist=n2,n7", "--no-kill", "--exclusive"} <= set(words)
    assert words[-1] == "--partition=gpu"


def test_a_step_of_agents_gets_named_variables_alone_and_outlives_its_tasks() -> None:
    command, more = ["muster", "agent"], ["--container-image=x"]
    words = agent_step("7", ["n1", "n2"], command, ["HOME", "PATH"], "gang.2", more)
    assert {"--jobid=7", "--overlap", "--no-kill", "--kill-on-bad-exit=0"} <= set(words)
    assert {"--ntasks=2", "--ntasks-per-node=1", "--export=HOME,PATH"} <= set(words)
    assert "--job-name=gang.2" in words
    assert words[-3:] == ["--container-image=x", "muster", "agent"]


def test_gpus_that_slurm_manages_are_read_and_asked_for_in_the_step() -> None:
    rows = [
        "NodeName=n1 Arch=x86_64 Gres=gpu:h100:8(S:0-1),shard:gpu:64(S:0) NodeAddr=n1 State=IDLE",
        "NodeName=n2 Gres=gpu:a:2,gpu:b:1 State=IDLE",
        "NodeName=n3 Gres=gpu:4 State=IDLE",
        "NodeName=n4 Gres=(null) State=IDLE",
        "NodeName=n5 State=IDLE Reason=no gpu:3 [root@2026-11-28T01:07:41]",
    ]
    assert read_gpus("\n".join(rows)) == {"n1": 8, "n2": 3, "n3": 4}
    assert "--gres=gpu:8" in agent_step("7", ["n1"], ["muster"], [], "agents", (), 8)
    words = agent_step("7", ["n1"], ["muster"], [], "agents", ("--gpus-per-node=4",), 8)
    assert not any("--gres" in word for word in words)
    assert not any("--gres" in word for word in agent_step("7", ["n1"], ["muster"], [], "agents"))


def test_a_row_of_squeue_is_read_whatever_the_name_holds() -> None:
    job = read_job("12|RUNNING|alice|n[1-3,5]|n1|None|UNLIMITED|NONE|a|b: c")
    assert job == SlurmJob("12", "RUNNING", "alice", ("n1", "n2", "n3", "n5"), "a|b: c", (), "None")
    waiting = read_job("13|PENDING|bob||n[1-2]|ReqNodeNotAvail, UnavailableNodes:n2|2:00|N/A|x")
    assert (waiting.hosts, waiting.requested) == ((), ("n1", "n2"))
    assert waiting.reason == "ReqNodeNotAvail, UnavailableNodes:n2"
    for row in ("12|RUNNING", "1|RUNNING|a|n[1||None|2:00|N/A|x"):
        with pytest.raises(SlurmFailed, match="squeue"):
            read_job(row)


def put(folder: Path, name: str, script: str) -> None:
    """Make a program."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


async def test_a_command_that_fails_says_so_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SlurmFailed, match="no-such-program: no such program in PATH"):
        await run_command(["no-such-program"])
    put(tmp_path, "salloc", "echo salloc: error: Job submit failed: no partition >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SlurmFailed, match=r"^salloc: Job submit failed: no partition$"):
        await run_command(["salloc"])
    with pytest.raises(SlurmFailed, match="false: ended with 1"):
        await run_command(["false"])


class FakeSlurm:
    """Remembers what it is told, and grants nodes that nothing stands against; of one that pends,
    squeue is asked meanwhile."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.refused: dict[str, str] = {}
        self.granted = set[str]()
        self.answer = ""

    async def __call__(self, words: Sequence[str]) -> str:
        for word in words:
            if words[0] == "salloc" and word.startswith("--nodelist="):
                nodes = word.partition("=")[2].split(",")
                for node in nodes:
                    if node in self.refused:
                        raise SlurmFailed(f"salloc: Job submit failed: {self.refused[node]}")
                self.granted |= set(nodes)
        self.calls.append(list(words))
        return self.answer

    @property
    def node_lists(self) -> list[str]:
        """Nodes of each allocation that was granted."""
        words = (word for call in self.calls for word in call)
        return [word.partition("=")[2] for word in words if word.startswith("--nodelist=")]


class Kept(SlurmAgents):
    """Writes down which steps it would start, and what it would submit."""

    def __init__(self, folder: Path) -> None:
        self.slurm, self.now_s = FakeSlurm(), 0.0
        super().__init__(SlurmKeys(), folder, "", SlurmCommands(run=self.slurm), lambda: self.now_s)
        self.steps: list[tuple[str, tuple[str, ...]]] = []
        self.names: list[str] = []
        self.told: list[Any] = []
        self._sessions: Any = SimpleNamespace(connected=set(), address="127.0.0.1:1")
        self._nodes = dict.fromkeys(("n1", "n2", "n3"), (NodeState.UP, ""))

    def lead(self, state: State) -> tuple[str, ...]:
        """Be of the leading writer of that state. Return its hosts, which are up."""
        writer: Any = SimpleNamespace(state=state, now_ns=lambda: int(self.now_s * 10**9))
        self._writer, hosts = writer, tuple(state.loaded_fabric.hosts)
        self._nodes = dict.fromkeys(hosts, (NodeState.UP, ""))
        return hosts

    async def settle(self, wanted: dict[str, tuple[str, ...]], *jobs: SlurmJob) -> None:
        hosts = {host for hosts in wanted.values() for host in hosts}
        await self.reconcile(wanted, jobs, hosts)
        await asyncio.sleep(0)

    async def _submit(self, command: Any) -> None:
        self.told.append(command)

    async def _run_step(self, job_id: str, step: AgentStep, hosts: Any, gpus: int) -> None:
        self.steps.append((job_id, tuple(hosts)))
        self.names.append(step.name)


@pytest.fixture
def agents(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "a")


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def held(job_id: str, hosts: tuple[str, ...], group: str = "g", user: str = ME) -> SlurmJob:
    return SlurmJob(job_id, "RUNNING", user, hosts, f"muster:{group}")


async def test_what_is_missing_is_asked_for_and_what_nobody_wants_is_given_back(
    agents: Kept,
) -> None:
    agents._nodes["n3"] = (NodeState.DRAIN, "disk")
    await agents.settle({"g": ("n1", "n2", "n3")}, held("5", ("n2",), "other", "somebody"))
    ((salloc),) = agents.slurm.calls
    assert "--nodelist=n1" in salloc  # n2 is somebody else's, n3 is drained
    assert "--job-name=muster:g" in salloc
    agents.slurm.calls.clear()
    orphan, foreign = held("8", ("n2",), "gone"), held("9", ("n3",), "gone", "somebody")
    await agents.settle({"g": ("n1",)}, held("7", ("n1",)), orphan, foreign)
    assert agents.slurm.calls == [["scancel", "8"]]
    agents.slurm.calls.clear()
    agents._busy = lambda: {"n2"}  # its ranks may still save
    await agents.settle({"g": ("n1",)}, held("7", ("n1",)), orphan)
    assert agents.slurm.calls == []


async def test_hosts_with_other_numbers_of_gpus_have_a_step_of_their_own(agents: Kept) -> None:
    agents._gpus = {"n1": 8, "n3": 8}
    wanted, job = {"g": ("n1", "n2", "n3")}, held("7", ("n1", "n2", "n3"))
    await agents.settle(wanted)
    await agents.settle(wanted, job)
    assert agents.steps == [("7", ("n2",)), ("7", ("n1", "n3"))]


async def test_agents_are_one_step_at_first_and_steps_of_their_own_later(agents: Kept) -> None:
    wanted, job = {"g": ("n1", "n2")}, held("7", ("n1", "n2"))
    await agents.settle(wanted)
    await agents.settle(wanted, job)
    await agents.settle(wanted, job)
    assert agents.steps == [("7", ("n1", "n2"))]
    assert agents.starting() == {"n1", "n2"}
    agents._sessions.connected |= {"n1", "n2"}
    await agents.settle(wanted, job)
    agents._sessions.connected -= {"n2"}
    await agents.settle(wanted, job)
    assert agents.steps[1:] == [("7", ("n2",))]
    assert agents.starting() == set()  # it was there: it is lost
    agents.now_s = 10.0
    await agents.settle(wanted, job)
    assert len(agents.steps) == 2
    agents.now_s = 30.0
    await agents.settle(wanted, job)
    assert agents.steps[2:] == [("7", ("n2",))]
    agents._nodes["n2"] = (NodeState.DOWN, "")
    agents.now_s = 300.0
    await agents.settle(wanted, job)
    assert len(agents.steps) == 3


async def test_agents_that_do_not_come_in_are_named_once_with_where_to_look(
    agents: Kept, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted, job = {"g": ("n1", "n2", "n3")}, held("7", ("n1", "n2", "n3"))
    await agents.settle(wanted)
    await agents.settle(wanted, job)
    agents._sessions.connected |= {"n3"}
    for agents.now_s in (21.0, 62.0, 143.0):
        await agents.settle(wanted, job)
    _, text = (record.getMessage() for record in caplog.records)  # the first: all are started
    assert "no agent has come in from n[1-2]" in text
    assert f"{tmp_path}/a/steps.log" in text
    assert "at 127.0.0.1:1, which other machines do not reach: set agents.listen" in text
    assert len(agents.steps) == 7  # all at first, each of two again three times


async def test_the_next_server_waits_for_agents_of_the_last_one(tmp_path: Path) -> None:
    wanted, job = {"g": ("n1", "n2")}, held("7", ("n1", "n2"))
    first = Kept(tmp_path / "a")
    await first.settle(wanted)
    await first.settle(wanted, job)
    assert first.steps == [("7", ("n1", "n2"))]
    second = Kept(tmp_path / "a")
    assert second.secrets == first.secrets
    await second.settle(wanted, job)
    assert second.steps == []
    second._sessions.connected |= {"n1"}
    second.now_s = 6.0
    await second.settle(wanted, job)
    assert second.steps == [("7", ("n2",))]


async def test_a_node_that_is_refused_is_found_by_halves_and_the_others_are_held(
    agents: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    agents.slurm.refused = {"n3": "Requested node configuration is not available"}
    names = tuple(f"n{number}" for number in range(1, 7))
    agents._nodes = dict.fromkeys(names, (NodeState.UP, ""))

    async def look() -> None:
        jobs = [held(f"j{node}", (node,)) for node in sorted(agents.slurm.granted)]
        await agents.settle({"g": names}, *jobs)

    for _ in range(5):
        await look()
    assert agents.slurm.granted == set(names) - {"n3"}
    assert "does not grant n3: Requested node configuration is not available" in caplog.text
    agents._sessions.connected = {"n1", "n2", "n4", "n5", "n6"}
    agents.now_s = 9.0
    await look()
    assert agents.starting() == {"n3"}  # not lost: it cannot have an agent
    agents.slurm.refused.clear()
    agents.now_s = 10.0
    await look()
    assert "n3" in agents.slurm.granted
    assert agents._refusals.reason("n3") == ""


async def test_licenses_are_asked_for_once_a_gang_and_before_its_other_hosts(agents: Kept) -> None:
    agents._keys = agents._keys.model_copy(update={"licenses": "seats:1"})
    agents._refusals.add(("n1", "n2"), "Priority", 0.0)  # they are asked for by halves
    wanted = {"g": ("n1", "n2", "n3")}
    await agents.settle(wanted)
    assert [call[-1] for call in agents.slurm.calls] == ["--licenses=seats:1"]
    assert agents.slurm.node_lists == ["n1"]
    await agents.settle(wanted, held("7", ("n1",)))
    assert set(agents.slurm.node_lists[1:]) == {"n2", "n3"}
    assert not any("--licenses=seats:1" in call for call in agents.slurm.calls[1:])


def test_want_of_licenses_is_no_matter_of_single_hosts() -> None:
    refusals, names = Refusals(), ["n1", "n2", "n3"]
    assert refusals.add(names, "Licenses", 0.0)
    assert {refusals.reason(name) for name in names} == {"Licenses"}
    assert list(refusals.split(names, 9.0)) == []
    assert list(refusals.split(names, 10.0)) == [names]
    assert not refusals.add(names, "Licenses", 10.0)


async def test_a_controller_that_does_not_answer_refuses_nothing(agents: Kept) -> None:
    agents.slurm.refused = {"n1": "Unable to contact slurm controller (connect failure)"}
    wanted = {"g": ("n1", "n2"), "h": ("n3",)}
    for _ in range(3):
        await agents.settle(wanted)
    assert agents._refusals.reason("n1") == ""
    assert agents.slurm.granted == {"n3"}  # which waits for no other
    agents.slurm.refused.clear()
    await agents.settle(wanted)
    assert agents.slurm.granted == {"n1", "n2", "n3"}


ROW = (
    "ReservationName=maint StartTime=1970-01-01T10:00:00 EndTime=1970-01-01T12:00:00"
    " Duration=02:00:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT,SPEC_NODES Users=ada Accounts=(null)"
)


@pytest.mark.usefixtures("_utc")
async def test_hosts_are_held_until_a_reservation_begins_and_not_asked_for_within(
    agents: Kept,
) -> None:
    reservation = read_reservation(ROW)
    assert reservation is not None
    assert reservation.text == "reservation maint of ada until 1970-01-01T12:00:00Z"
    agents._reservations = [reservation]
    agents.lead(loaded(fabric(1, 1, 2)))
    agents._nodes = dict.fromkeys(("n1", "n3"), (NodeState.UP, ""))
    agents.now_s = 8 * 3_600
    await agents.settle({"g": ("n1", "n3")})
    assert agents.slurm.node_lists == ["n1", "n3"]
    assert ["--time=119" in call for call in agents.slurm.calls] == [True, False]
    agents.now_s = 10 * 3_600
    await agents.settle({"g": ("n1",)})
    assert len(agents.slurm.calls) == 2
    assert agents._bar("n1") == reservation.text


@pytest.mark.usefixtures("_utc")
async def test_a_reservation_is_a_window_until_slurm_has_it_no_more(agents: Kept) -> None:
    state = loaded(fabric(1, 1, 2))
    host, _ = agents.lead(state)
    found = read_reservation(ROW.replace("n[1-2]", host))
    assert found is not None
    agents._reservations = [found]
    await agents._set_windows([])
    (command,) = agents.told
    window = command.window
    assert (window.name, window.among, window.end_ns) == ("slurm-maint", (host,), 43_200 * 10**9)
    agents.lead(run(state, command))
    await agents._set_windows([])
    assert len(agents.told) == 1
    agents._reservations = []
    await agents._set_windows([])
    assert agents.told[1:] == [RemoveWindow("slurm-maint", "slurm: it is over")]


@pytest.mark.usefixtures("_utc")
async def test_gangs_leave_an_allocation_before_its_limit_and_it_is_asked_for_again(
    agents: Kept,
) -> None:
    (host,) = agents.lead(loaded(fabric(1, 1, 1)))
    name = "1970-01-01T01:00:00|muster:hosts"
    job = read_job(f"7|RUNNING|{ME}|{host}||None|1:00:00|{name}")
    assert job.leave_ns == (3_600 - 180) * 10**9
    assert read_job(f"7|RUNNING|{ME}|{host}||None|2:00|{name}").leave_ns == 3_570 * 10**9
    assert read_job(f"7|RUNNING|{ME}|{host}||None|UNLIMITED|{name}").leave_ns is None
    agents._busy = lambda: {host}
    await agents._set_windows([job])
    agents.now_s = 3_420
    await agents._set_windows([job])
    (command,) = agents.told
    assert (command.window.name, command.window.leave) == ("slurm-job-7", Leave.REQUEUE)
    await agents.settle({WHOLE: (host,)}, job)
    assert agents.slurm.calls == []
    agents._busy = frozenset
    await agents.settle({WHOLE: (host,)}, job)
    assert agents.slurm.calls == [["scancel", "7"]]


async def test_allocations_of_gangs_say_whose_they_are(agents: Kept) -> None:
    agents._keys = agents._keys.model_copy(update={"accounts": {"nlp": "nlp-gpu"}})
    holder: Any = SimpleNamespace(name="llama", user="ada", tenant="nlp")
    agents._holders = {"g": holder}
    await agents.settle({"g": ("n1",)})
    (call,) = agents.slurm.calls
    assert "--comment=gang llama of ada, tenant nlp" in call
    assert "--account=nlp-gpu" in call


async def test_limits_of_the_partition_are_said_and_kept(
    agents: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    row = "PartitionName=main Default=YES MaxNodes=2 MaxTime=1-00:30:00 Nodes=n[1-6]"
    agents.slurm.answer = row
    partition = await agents._commands.partition()
    assert partition == Partition("main", 2, 88_200 * 10**9)
    agents._warn_of_limits(partition)
    assert "main ends each allocation after 1 day, 0:30:00" in caplog.text
    assert "2 nodes at most" in caplog.text
    agents._partition, agents._partitions = partition, {"n2": ["other"]}
    agents._nodes["n4"] = (NodeState.UP, "")
    await agents.settle({"g": ("n1", "n2", "n3", "n4")})
    assert agents.slurm.node_lists == ["n1,n3", "n4"]
    assert agents._bar("n2") == "it is not in partition main"


async def test_a_host_that_slurm_refuses_lacks_or_gave_another_is_drained_with_the_reason(
    agents: Kept,
) -> None:
    first, second, third = agents.lead(loaded(fabric(1, 1, 3)))
    agents._refusals.add([first], "AssocGrpNodeLimit", 0.0)
    del agents._nodes[third]
    await agents._tell([held("123", (second,), user="ada")])
    assert agents.told == [
        MoveHost(first, HostMove.DRAIN, "slurm: refused: AssocGrpNodeLimit"),
        MoveHost(second, HostMove.DRAIN, "slurm: held by ada's job 123"),
        MoveHost(third, HostMove.DRAIN, "slurm: it has no such node, or hides it from this user"),
    ]
    agents.told.clear()
    agents._sessions.connected.add(third)  # an agent that Slurm has not started
    await agents._tell([held("7", (first, second))])  # granted: what was known is over
    assert agents.told == []


async def test_a_host_without_an_allocation_is_not_lost_by_its_agent(
    agents: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    host, _ = agents.lead(loaded(fabric(1, 1, 2)))
    await agents.settle({"hosts": (host,)}, held("7", (host,), "hosts"))
    assert not agents.is_dismissed(host)
    agents.slurm.answer = "JobId=7 JobState=TIMEOUT Reason=TimeLimit"
    await agents.settle({"hosts": (host,)})
    await asyncio.sleep(0.01)
    assert agents.is_dismissed(host)
    assert f"allocation 7 of {host} has ended: TIMEOUT (TimeLimit)" in caplog.text


def test_a_host_of_a_lost_agent_is_to_have_one_again_and_no_other_idle_one(agents: Kept) -> None:
    state = loaded(fabric(1, 1, 3))
    lost = run(state, fail("z0-r0-h1", "agent-lost"), fail("z0-r0-h2", "gpu-lost"))
    agents._keys = SlurmKeys(holding=HoldingScope.GANG)
    assert agents.groups_to_hold(state) == {}
    assert agents.groups_to_hold(lost) == {"lost-z0-r0-h1": ("z0-r0-h1",)}
    agents._keys = SlurmKeys(step=StepScope.ATTEMPT)
    assert agents._agent_hosts(lost) == {"z0-r0-h1"}
    assert agents.attempts(lost) == []
    assert agents.agent_command()[-1] == "--one-attempt"


async def test_each_attempt_has_a_step_of_its_own(agents: Kept) -> None:
    job = held("7", ("n1", "n2", "n3"))

    async def settled_with(*attempts: AgentStep, lost: tuple[str, ...] = ()) -> None:
        hosts = {host for each in attempts for host in each.hosts}
        await agents.reconcile({"g": job.hosts}, [job], hosts | set(lost), attempts)
        await asyncio.sleep(0)

    await settled_with()
    first = AgentStep("gang.1", ("n1", "n2"), "u", 1)
    await settled_with(first)
    await settled_with(first)
    assert (agents.steps, agents.names) == ([("7", ("n1", "n2"))], ["gang.1"])
    assert agents.starting() == {"n1", "n2"}
    agents._sessions.connected |= {"n1", "n2"}  # those of the first have yet to leave
    second = AgentStep("gang.2", ("n1", "n3"), "u", 2)
    await settled_with(second, lost=("n2",))
    assert (agents.steps[1:], agents.names[1:]) == ([("7", ("n1", "n3"))], ["gang.2"])
    agents._sessions.connected -= {"n1", "n2"}
    await settled_with(second, lost=("n2",))
    assert (agents.steps[2:], agents.names[2:]) == ([("7", ("n2",))], ["agents"])
    agents.now_s = 100.0  # agents of an attempt are started once: the server gives up lost ones
    await settled_with(second)
    assert len(agents.steps) == 3


def test_a_step_in_a_container_has_the_options_of_pyxis() -> None:
    for image, shown in (
        ("docker://example.org/a/b:1", "example.org#a/b:1"),
        ("nvcr.io:443/nvidia/pytorch:24.01", "nvcr.io:443#nvidia/pytorch:24.01"),
        ("library/python:3.12", "library/python:3.12"),
        ("/images/a.sqsh", "/images/a.sqsh"),
    ):
        options = container_options(ContainerSpec(image, ("/d:/d:ro",)), "/home/ada")
        assert options == [
            f"--container-image={shown}",
            "--container-mounts=/home/ada:/home/ada,/d:/d:ro",
        ]
    assert container_options(ContainerSpec("a"), "") == ["--container-image=a"]


async def test_a_container_is_refused_where_srun_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "srun", "echo ' --container-image=[USER@][REGISTRY#]IMAGE [pyxis] the image'")
    container = ContainerSpec("a")
    assert SlurmAgents(SlurmKeys(), tmp_path / "a").container_refusal(container) is None
    agents = SlurmAgents(SlurmKeys(step=StepScope.ATTEMPT), tmp_path / "a")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "pyxis is not installed" in str(agents.container_refusal(container))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    agents._has_pyxis = await agents._commands.has_pyxis()
    assert agents.container_refusal(container) == ""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "as root" in str(agents.container_refusal(container))


async def test_agents_of_an_attempt_start_in_its_container_and_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "srun", f'echo "$MUSTER_CONTAINER" "$@" > {tmp_path}/said')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    agents = SlurmAgents(SlurmKeys(step=StepScope.ATTEMPT, server="m:1"), tmp_path / "a")
    container = ContainerSpec("nvcr.io/a:1", ("/d:/d:ro",))
    step = AgentStep("gang.1", ("n1",), "u", 1, container, "/home/ada")
    await agents._run_step("7", step, ["n1"], 0)
    said = (tmp_path / "said").read_text().split()
    assert " ".join(said[:2]) == container_key(container.image, container.mounts)
    assert {"--container-image=nvcr.io#a:1", "--jobid=7"} <= set(said)
    assert "--container-mounts=/home/ada:/home/ada,/d:/d:ro" in said
    (exported,) = (word for word in said if word.startswith("--export="))
    assert "MUSTER_CONTAINER" in exported
    assert said[-1] == "--one-attempt"


async def test_the_next_server_lets_steps_of_attempts_stand(agents: Kept) -> None:
    job = held("7", ("n1", "n2"))
    found = AgentStep("gang.4", ("n1", "n2"), "u", 4)
    for agents.now_s, connected, steps in (
        (0.0, set(), []),
        (4.0, {"n1"}, []),
        (6.0, {"n1"}, [("7", ("n2",))]),
        (60.0, {"n1"}, [("7", ("n2",))]),
    ):
        agents._sessions.connected = connected
        await agents.reconcile({"g": job.hosts}, [job], set(found.hosts), [found])
        await asyncio.sleep(0)
        assert agents.steps == steps


def test_secrets_are_for_the_server_alone_and_in_no_command(agents: Kept, tmp_path: Path) -> None:
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "join-secret").stat().st_mode & 0o777 == 0o600
    words = agents.agent_command()
    assert agents.secrets[0] not in " ".join(words)
    assert words[words.index("--join-token-file") + 1] == "-"


async def test_the_launcher_goes_on_after_an_error_of_any_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """squeue answers with what nobody foresaw, once."""

    calls = list[Sequence[str]]()

    async def odd(words: Sequence[str]) -> str:
        calls.append(words)
        if len(calls) == 1:
            raise ZeroDivisionError
        return ""

    agents = SlurmAgents(SlurmKeys(), tmp_path / "a", "", SlurmCommands(run=odd))
    state = loaded(fabric(1, 1, 3))
    writer: Any = SimpleNamespace(term=1, state=state, submit=None, now_ns=lambda: 0)
    sessions: Any = SimpleNamespace(connected=set(state.loaded_fabric.hosts), address="h:1")
    agents.start(writer, sessions, frozenset)
    try:
        async with asyncio.timeout(60):
            while len(calls) < 2:
                await asyncio.sleep(0.02)
    finally:
        await agents.close()
    assert "slurm failed (ZeroDivisionError()); it begins again" in caplog.text
