"""Agents that keep copies of ranks' state in memory, and give them to each other."""

import asyncio
import os
import pwd
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from muster import progress
from scheduler.agent.copies.exchange import CopyRefused, CopyRequest, check_answer, open_request
from scheduler.agent.copies.host_copies import HostCopies
from scheduler.agent.copies.job_copies import CopyName, JobCopies
from scheduler.agent.ranks.attempt import Key
from scheduler.v1 import agent_pb2
from tests.waiting import until

ME = pwd.getpwuid(os.geteuid())
SECRET = b"s" * 32
Held = dict[tuple[int, int], list[int]]


class Host:
    """An agent's copies, and ranks that write some."""

    def __init__(self, folder: Path) -> None:
        self.said: list[agent_pb2.HeldCopies] = []
        self.copies = HostCopies(
            folder, "127.0.0.1", lambda word: self.said.append(word.held_copies)
        )

    async def prepare(
        self,
        attempt: int = 1,
        *wanted: agent_pb2.WantedCopy,
        uid: str = "uid",
        secret: bytes = SECRET,
        most: int = 10_000,
    ) -> None:
        terms = agent_pb2.CopyTerms(secret=secret, most_bytes=most, wanted=wanted)
        self._terms = await self.copies.prepare(Key(uid, attempt), terms, ME, [])

    def begin(
        self, attempt: int = 1, *targets: "Host", uid: str = "uid", start: tuple[int, int] = (0, 0)
    ) -> dict[str, str]:
        order = {"copies": self._terms, "env": {"LOCAL_WORLD_SIZE": "1"}}
        launch = agent_pb2.Launch(copy_addresses=[each.address for each in targets])
        launch.copy_attempt, launch.copy_step = start
        launch.copy_of.extend([1] if targets else [])
        return self.copies.begin(Key(uid, attempt), order, launch)

    @property
    def address(self) -> str:
        return self._held("uid").address

    def _held(self, uid: str) -> agent_pb2.HeldCopies:
        held = self.copies.describe(Key(uid, 0))
        assert held is not None
        return held

    async def holds(self) -> Held:
        await self.copies.look()
        return {(c.attempt, c.step): [*c.ranks] for c in self._held("uid").copies}

    def folder(self, uid: str = "uid") -> Path:
        folder = self.copies.folder_of(uid)
        assert folder is not None
        return folder

    def own(self, rank: int, attempt: int, step: int) -> Path:
        return self.folder() / "own" / CopyName(rank, attempt, step).file

    def kept(self, rank: int, attempt: int, step: int) -> Path:
        return self.folder() / "kept" / CopyName(rank, attempt, step).file


Hosts = Callable[[str], Host]


async def hold(held: Held, *hosts: Host) -> None:
    """Wait until that is what the hosts hold."""

    async def do() -> bool:
        return [await each.holds() for each in hosts] == [held] * len(hosts)

    await until(do)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Hosts]:
    """Makes hosts by name; the same name is the same agent, started again."""
    made: list[Host] = []

    def make(name: str) -> Host:
        (tmp_path / name).mkdir(exist_ok=True)
        made.append(Host(tmp_path / name))
        return made[-1]

    yield make
    for each in made:
        each.copies.close(keeps=False)
        assert not each.copies.root.exists()


def wanted(source: Host, attempt: int, step: int, *ranks: int) -> agent_pb2.WantedCopy:
    copy = agent_pb2.HeldCopy(attempt=attempt, step=step, ranks=ranks)
    return agent_pb2.WantedCopy(address=source.address, copy=copy)


async def pair(host: Hosts, most: int = 10_000) -> tuple[Host, Host]:
    """Two hosts, of which the first sends its copies to the second."""
    first, second = host("first"), host("second")
    for each in (first, second):
        await each.prepare(most=most)
    second.begin()
    first.begin(1, second)
    return first, second


async def ready(host: Hosts, attempt: int = 1) -> Host:
    """A host whose attempt has begun."""
    there = host("there")
    await there.prepare(attempt)
    there.begin(attempt)
    return there


async def put(address: str, request: CopyRequest, secret: bytes = SECRET, data: bytes = b"") -> str:
    """Offer a copy, and send that in its place. Return why it is refused; "": it is not."""

    def do() -> str:
        try:
            with open_request(address, secret, request) as (link, proof):
                proof.update(b"meant")
                link.sendall(data)
                if len(data) == request.size:
                    link.sendall(proof.digest())
                    check_answer(link)
        except CopyRefused as refused:
            return str(refused)
        return ""

    return await asyncio.to_thread(do)


async def test_what_a_rank_writes_comes_to_its_peer_and_from_there_to_the_next_host(
    host: Hosts,
) -> None:
    first, second = await pair(host)
    first.own(0, 1, 5).write_bytes(b"state of rank 0")
    await hold({(1, 5): [0]}, first, second)
    assert second.kept(0, 1, 5).read_bytes() == b"state of rank 0"
    assert second.said[-1].copies[0].step == 5
    first.copies.close(keeps=False)
    joining = host("joining")
    await joining.prepare(2, wanted(second, 1, 5, 0))
    assert await joining.holds() == {(1, 5): [0]}
    assert joining.kept(0, 1, 5).read_bytes() == b"state of rank 0"


async def test_the_step_before_stays_until_the_newer_one_is_complete_everywhere(
    host: Hosts,
) -> None:
    first, second = await pair(host)
    first.own(0, 1, 5).write_bytes(b"x")
    await hold({(1, 5): [0]}, first, second)
    first.own(0, 1, 10).write_bytes(b"x")  # nothing has been said to be complete
    await hold({(1, 10): [0]}, first, second)
    for each in (first, second):
        each.copies.note_complete(Key("uid", 1), 10)
    first.own(0, 1, 15).write_bytes(b"x")
    await hold({(1, 10): [0], (1, 15): [0]}, first, second)
    first.own(0, 1, 20).write_bytes(b"x")
    await hold({(1, 10): [0], (1, 20): [0]}, first, second)
    second.copies.note_complete(Key("uid", 1), 20)
    assert await second.holds() == {(1, 20): [0]}


async def test_an_attempt_begins_with_its_start_and_nothing_else(host: Hosts) -> None:
    first, _ = await pair(host)
    for step in (5, 10):
        first.own(0, 1, step).write_bytes(b"x")
    await first.prepare(2)
    await first.copies.look()  # until it begins nothing is removed
    variables = first.begin(2, start=(1, 5))
    assert (variables["MUSTER_COPY_ATTEMPT"], variables["MUSTER_COPY_STEP"]) == ("1", "5")
    assert await first.holds() == {(1, 5): [0]}
    await first.prepare(3)
    assert "MUSTER_COPY_STEP" not in first.begin(3)
    assert await first.holds() == {}


async def test_copies_outlive_the_agent_which_listens_where_it_did(host: Hosts) -> None:
    first, second = await pair(host)
    first.own(0, 1, 5).write_bytes(b"x")
    await hold({(1, 5): [0]}, first, second)
    address = second.address
    second.copies.close()
    again = host("second")
    order = {"copies": second._terms, "user": ME.pw_name, "env": {}}
    again.copies.resume(Key("uid", 1), order, ME)
    assert await again.holds() == {(1, 5): [0]}
    assert again.address == address


@pytest.mark.parametrize(
    ("uid", "secret", "attempt", "step", "size", "reason"),
    [
        ("other", SECRET, 2, 5, 1, "knows another secret"),
        ("uid", b"t" * 32, 2, 5, 1, "knows another secret"),
        ("uid", SECRET, 1, 5, 1, "attempt 2 of the job is the present one here"),
        ("uid", SECRET, 2, 3, 1, "copies of a later step are here"),
        ("uid", SECRET, 2, 5, 10_001, "10,001 bytes are too many: 1 of 10,000 are in use"),
    ],
)
async def test_a_copy_that_is_not_wanted_is_refused(
    host: Hosts, uid: str, secret: bytes, attempt: int, step: int, size: int, reason: str
) -> None:
    """Of another gang, without its secret, of a stale attempt, stale, too large."""
    there = await ready(host, 2)
    there.kept(7, 2, 4).write_bytes(b"x")
    there.copies.note_complete(Key("uid", 2), 4)
    request = CopyRequest(uid, True, CopyName(0, attempt, step), size)
    assert reason in await put(there.address, request, secret)
    assert await there.holds() == {(2, 4): [7]}


async def test_a_copy_that_is_changed_on_its_way_or_never_ends_leaves_nothing(host: Hosts) -> None:
    there = await ready(host)
    request = CopyRequest("uid", True, CopyName(0, 1, 5), 4)
    assert "what came is not what was sent" in await put(there.address, request, data=b"sent")
    assert await put(there.address, request, data=b"st") == ""
    await until(lambda: there.copies._reserved == 0)
    assert not list(there.kept(0, 1, 5).parent.iterdir())


async def test_an_agent_sends_nothing_to_who_does_not_know_the_secret(host: Hosts) -> None:
    got = list[bytes]()

    def pretend(listening: socket.socket) -> None:
        link, _ = listening.accept()
        with link:
            link.sendall(bytes(32))
            size = int.from_bytes(link.recv(2, socket.MSG_WAITALL), "big")
            link.recv(size + 64, socket.MSG_WAITALL)
            link.sendall(bytes(2 + 32))  # accepted
            got.append(link.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        pretending = asyncio.create_task(asyncio.to_thread(pretend, listening))
        request = CopyRequest("uid", True, CopyName(0, 1, 5), 4)
        assert "does not know the secret" in await put(address, request, data=b"data")
        await pretending
    assert got == [b""]


async def test_a_folder_of_somebody_else_in_memory_is_left_alone(
    host: Hosts, tmp_path: Path
) -> None:
    there = host("there")
    (tmp_path / "home" / "ada").mkdir(parents=True)
    there.copies.root.symlink_to(tmp_path / "home")
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        await there.prepare()
    assert (tmp_path / "home" / "ada").exists()
    there.copies.root.unlink()


async def test_ranks_enter_folders_of_an_agent_with_a_strict_umask(host: Hosts) -> None:
    before = os.umask(0o077)
    try:
        there = await ready(host)
    finally:
        os.umask(before)
    folder = there.folder()
    for path in (folder.parent, folder, folder / "kept"):
        assert path.stat().st_mode & 0o777 == 0o711


async def test_files_with_holes_take_no_room_of_others(host: Hosts) -> None:
    first, second = await pair(host, 15_000)
    for rank in range(10, 30):
        with second.own(rank, 1, 5).open("wb") as file:
            file.truncate(2_500)
    first.own(0, 1, 5).write_bytes(b"x")
    await hold({(1, 5): [0]}, first)
    await until(lambda: second.kept(0, 1, 5).exists())


def test_a_step_lasts_until_it_is_everywhere_however_often_ranks_write(tmp_path: Path) -> None:
    """Hosts look at different times, and a step is complete once all have had it for a while."""
    random, takes = Random(1), 7
    jobs = [JobCopies("uid", tmp_path, ME) for _ in range(3)]
    kept: list[set[tuple[int, int]]] = [set() for _ in jobs]
    ages = Counter[tuple[int, int]]()
    complete = [0]
    for step in range(10, 3_000, 10):
        for job, has in zip(jobs, kept, strict=True):
            has.add((1, step))
            if random.random() < 0.5:  # else both that step and the next one are there at the look
                has &= job.steps_to_keep(has)
        common = set.intersection(*kept)
        ages = Counter({version: ages[version] + 1 for version in common})
        ripe = max((version for version, age in ages.items() if age >= takes), default=(0, 0))
        if ripe[1] > complete[-1]:
            complete.append(ripe[1])
            for job in jobs:
                job.floor = ripe
    pauses = [after - before for before, after in pairwise([*complete, 3_000])]
    assert max(pauses) <= 4 * takes * 10
    assert len(complete) > 10


async def test_a_source_that_is_gone_or_has_no_address_costs_its_copies_alone(host: Hosts) -> None:
    first, second = await pair(host)
    gone = wanted(second, 1, 5, 0)
    second.copies.close(keeps=False)
    first.own(0, 1, 5).write_bytes(b"x")
    assert await first.holds() == {(1, 5): [0]}
    joining = host("joining")
    words = ("nonsense", "127.0.0.1:70000", "x" * 300 + ":1")
    none = [agent_pb2.WantedCopy(address=word, copy=gone.copy) for word in words]
    await joining.prepare(2, gone, *none)
    assert await joining.holds() == {}


async def test_a_rank_s_copy_that_is_too_large_is_removed(host: Hosts) -> None:
    first, _ = await pair(host, 15_000)  # three steps of its own rank and of one that it keeps
    first.own(0, 1, 5).write_bytes(b"x" * 2_500)
    assert await first.holds() == {(1, 5): [0]}
    first.own(0, 1, 6).write_bytes(b"x" * 2_501)
    assert await first.holds() == {}


async def test_what_lies_there_under_the_name_of_a_copy_is_not_followed(
    host: Hosts, tmp_path: Path
) -> None:
    first, second = await pair(host)
    (tmp_path / "secret").write_text("of another user")
    first.own(0, 1, 5).symlink_to(tmp_path / "secret")
    os.mkfifo(first.own(1, 1, 5))
    await hold({}, first, second)
    joining = host("joining")
    await joining.prepare(2, wanted(first, 1, 5, 0, 1))
    assert await joining.holds() == {}


async def test_copies_of_jobs_that_are_gone_are_removed(host: Hosts) -> None:
    there = host("there")
    await there.prepare(uid="old")
    await there.prepare(uid="new")
    assert there.copies.folder_of("old") is None

    def folders() -> list[str]:
        return [each.name for each in there.copies.root.iterdir() if each.is_dir()]

    assert folders() == ["new"]
    there.copies.drop("new")
    await until(lambda: not folders())


async def test_what_is_no_request_is_refused(host: Hosts) -> None:
    there = host("there")
    await there.prepare()
    address, _, port = there.address.rpartition(":")

    def speak(data: bytes) -> bytes:
        with socket.create_connection((address, int(port)), timeout=10) as link:
            assert len(link.recv(32)) == 32
            link.sendall(len(data).to_bytes(2, "big") + data + bytes(64))
            return link.recv(200)

    for data in (b"", b"[]", b'["uid", true, 0, 1, 5, -1]', b'["uid", 1, 0, 1, 5, 9]', b"{"):
        assert b"knows another secret" in await asyncio.to_thread(speak, data)
    assert threading.active_count() < 50


async def test_ranks_write_and_find_copies(host: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.copied() is None
    assert not progress.should_copy()
    with pytest.raises(RuntimeError, match=r"the job needs checkpoint\.peers"), progress.copying(5):
        pass
    first, second = await pair(host, 15_000)
    for name, value in first.begin(1, second).items():
        monkeypatch.setenv(name, value)
    assert progress.should_copy()  # the interval of the test is none
    with progress.copying(5) as path:
        path.write_bytes(b"state")
    await hold({(1, 5): [0]}, first, second)
    refused = pytest.raises(ValueError, match="has 2501 bytes; 2500 may be kept")
    with refused, progress.copying(6) as path:
        path.write_bytes(b"x" * 2_501)
    assert await first.holds() == {(1, 5): [0]}
    for name, value in first.begin(1, second, start=(1, 5)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MUSTER_ATTEMPT", "2")
    found = progress.copied()
    assert found is not None
    assert (found.step, found.path.read_bytes()) == (5, b"state")
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(FileNotFoundError, match="no copy of rank 3 after step 5"):
        progress.copied()
