"""The launcher and copies in memory: who has which, and what the next attempt begins with."""

from typing import Any

import pytest

from scheduler.core.model.commands import ReportHost
from scheduler.core.model.events import CheckpointSaved
from scheduler.core.policies.job_terms import CheckpointTerms
from scheduler.launch.gangs import orders
from scheduler.launch.gangs.checkpoints import LOG_EVERY_S
from scheduler.v1 import agent_pb2
from tests.build import cancel, exactly, job
from tests.unit.launch.test_launcher import GPUS, World, gang, given

Copies = dict[tuple[int, int], list[int]]


class CopyWorld(World):
    """A gang on four of six hosts, each of which keeps the copies of another one; and a spare."""

    def ranks(self, node: int) -> list[int]:
        return list(range(node * GPUS, (node + 1) * GPUS))

    def all_of(self, host: str) -> list[int]:
        """Ranks of a host, and those whose copies it keeps."""
        node = self.hosts().index(host)
        copies = self.state.jobs["a"].present.copies
        kept = [other for other, holders in enumerate(copies) if node in holders]
        return sorted(rank for each in (node, *kept) for rank in self.ranks(each))

    def held(self, host: str, copies: Copies) -> agent_pb2.HeldCopies:
        word = agent_pb2.HeldCopies(key=self.key(), address=f"ip-{host}:9")
        for (attempt, step), ranks in copies.items():
            word.copies.add(attempt=attempt, step=step, ranks=ranks)
        return word

    async def copied(self, step: int) -> None:
        """All hosts have all copies of a step."""
        for host in self.hosts():
            word = self.held(host, {(self.key().attempt, step): self.all_of(host)})
            self.say(host, held_copies=word)
        await self.settle()

    async def fails(self, *hosts: str) -> None:
        """These hosts are gone, and the rest of the gang has ended."""
        before, key = self.hosts(), self.key()
        for host in hosts:
            self.breaks(host)
        await self.give(*(ReportHost(host, "agent-lost") for host in hosts))
        await self.stopped(*(host for host in before if host not in hosts), key=key)

    async def prepares(self, *hosts: str, held: Copies | None = None) -> list[Any]:
        """All hosts are ready, of which these say what they have. What they are launched with."""
        self.words()
        for host in hosts:
            ready = agent_pb2.Prepared(key=self.key(), address=f"ip-{host}")
            ready.held.CopyFrom(self.held(host, held or {}))
            self.say(host, prepared=ready)
        await self.prepared()
        return [word for _, word in self.words("launch")]


@pytest.fixture
async def world() -> CopyWorld:
    made = CopyWorld(3, zones=2, site=orders.SiteTerms(copies_gb=2))
    terms = CheckpointTerms(interval_s=1_200, peers=1, peer_interval_s=60)
    await given(made, gang(hosts=4, spares=exactly(1), checkpoint=terms))
    for host in made.hosts():
        ready = agent_pb2.Prepared(key=made.key(), address=f"ip-{host}", port=4_000)
        ready.held.CopyFrom(made.held(host, {}))
        made.say(host, prepared=ready)
    await made.settle()
    return made


async def begun(world: CopyWorld) -> CopyWorld:
    for host in world.hosts():
        world.say(host, started=agent_pb2.Started(key=world.key()))
    await world.settle()
    world.words()
    return world


async def test_agents_are_told_what_copies_may_take_and_whom_they_go_to(world: CopyWorld) -> None:
    sent = world.sessions.sent
    terms = [m.prepare.copies for _, m in sent if m.WhichOneof("message") == "prepare"]
    told = {(t.most_bytes, t.interval.seconds, len(t.secret)) for t in terms}
    assert told == {(2 * 10**9, 60, 32)}
    assert len({t.secret for t in terms}) == 1
    assert not any(t.wanted for t in terms)
    hosts, launches = world.hosts(), dict(world.words("launch"))
    for node, host in enumerate(hosts):
        word = launches[host]
        (holder,) = word.copy_to
        assert (holder,) == job(world.state, "a").present.copies[node]
        assert list(word.copy_addresses) == [f"ip-{hosts[holder]}:9"]
        assert (word.copy_attempt, word.copy_step) == (0, 0)
        assert node in launches[hosts[holder]].copy_of
        assert hosts[holder][:2] != host[:2]  # never in its zone


async def test_a_step_is_complete_once_all_hosts_have_all_copies(world: CopyWorld) -> None:
    await begun(world)
    first, *others = world.hosts()
    for host in others:
        world.say(host, held_copies=world.held(host, {(1, 20): world.all_of(host)}))
    half = world.held(first, {(1, 20): world.all_of(first)[:GPUS]})
    world.say(first, held_copies=half)
    assert world.words() == []
    await world.copied(20)
    await world.copied(20)
    done = world.words("copies_complete")
    assert [(host, word.step) for host, word in done] == [(host, 20) for host in world.hosts()]
    (event,) = world.of(CheckpointSaved)
    assert (event.step, event.where) == (20, "")
    assert job(world.state, "a").saved is None
    await world.copied(30)
    assert len(world.of(CheckpointSaved)) == 1
    world.now_s += LOG_EVERY_S
    await world.copied(40)
    assert [event.step for event in world.of(CheckpointSaved)] == [20, 40]


async def test_a_swap_fetches_what_was_lost_and_all_go_on_from_memory(world: CopyWorld) -> None:
    old = {word.copies.secret for _, word in world.words("prepare")}
    await begun(world)
    await world.saved(world.hosts()[0], 10)
    await world.copied(20)
    before, victim = world.hosts(), world.hosts()[1]
    (holder,) = job(world.state, "a").present.copies[1]
    world.words()
    await world.fails(victim)
    assert job(world.state, "a").attempt == 2
    joined = world.hosts()[1]
    terms = {host: word.copies for host, word in world.words("prepare")}
    (secret,) = {each.secret for each in terms.values()}
    assert secret not in old  # the host that left knows none of the new attempt
    wanted = {host: each.wanted for host, each in terms.items()}
    assert {host for host, some in wanted.items() if some} == {joined}
    ((source),) = wanted[joined]
    assert source.address == f"ip-{before[holder]}:9"
    assert (source.copy.attempt, source.copy.step) == (1, 20)
    assert list(source.copy.ranks) == world.ranks(1)
    launched = await world.prepares(joined, held={(1, 20): world.ranks(1)})
    assert {(word.copy_attempt, word.copy_step) for word in launched} == {(1, 20)}
    assert {(word.checkpoint, word.checkpoint_step) for word in launched} == {("/c/10", 10)}


@pytest.mark.parametrize(
    ("saved_at", "is_peer_gone", "says_none", "wanted"),
    [(10, False, True, True), (10, True, False, False), (25, False, False, False)],
    ids=["it could not be fetched", "the peer is gone too", "the checkpoint is newer"],
)
async def test_without_all_copies_or_with_a_newer_checkpoint_all_go_back_to_storage(
    world: CopyWorld, saved_at: int, is_peer_gone: bool, says_none: bool, wanted: bool
) -> None:
    await begun(world)
    await world.copied(20)
    await world.saved(world.hosts()[0], saved_at)
    (holder,) = job(world.state, "a").present.copies[1]
    world.words()
    lost = world.hosts()[1], *([world.hosts()[holder]] if is_peer_gone else [])
    await world.fails(*lost)
    assert any(word.copies.wanted for _, word in world.words("prepare")) == wanted
    launched = await world.prepares(*world.hosts()[1 : 2 if says_none else 1])
    assert {(word.copy_attempt, word.copy_step) for word in launched} == {(0, 0)}
    assert {word.checkpoint_step for word in launched} == {saved_at}


async def test_a_rank_that_fails_costs_what_followed_the_last_renewal_and_the_end_all_copies(
    world: CopyWorld,
) -> None:
    await begun(world)
    world.now_s = 100.0
    await world.copied(20)
    world.now_s = 107.0
    first, *others = world.hosts()
    key = world.key()
    await world.exited(first, 0, 1)
    await world.stopped(first, *others, key=key)
    assert job(world.state, "a").attempt == 2
    assert job(world.state, "a").goodput.time.rework == 7 * 10**9
    launched = await world.prepares()
    assert {(word.copy_attempt, word.copy_step) for word in launched} == {(1, 20)}
    key, hosts = world.key(), world.hosts()
    await world.give(cancel("a"))
    await world.stopped(*hosts, key=key)
    dropped = [(host, word.job_uid) for host, word in world.words("drop_copies")]
    assert [host for host, uid in dropped if uid == "uid-a"] == list(hosts)


async def test_a_host_that_comes_back_drops_copies_of_a_job_that_goes_on_without_it(
    world: CopyWorld,
) -> None:
    await begun(world)
    await world.copied(20)
    victim, key = world.hosts()[1], world.key()
    await world.fails(victim)
    await world.prepares()
    stopped = agent_pb2.ATTEMPT_PHASE_STOPPED
    status = agent_pb2.AttemptStatus(key=key, phase=stopped)
    status.prepared.held.SetInParent()
    world.join(victim, attempts=(status,))
    assert [host for host, _ in world.words("drop_copies")] == [victim]


async def test_without_memory_for_copies_or_peers_agents_keep_none() -> None:
    for site, peers in ((orders.NO_TERMS, 1), (orders.SiteTerms(copies_gb=2), 0)):
        wanted = gang(hosts=4, checkpoint=CheckpointTerms(peers=peers))
        world = await given(World(3, zones=2, site=site), wanted)
        assert not any(word.HasField("copies") for _, word in world.words("prepare"))
