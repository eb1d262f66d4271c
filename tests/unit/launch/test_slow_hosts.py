"""The server looks for slow hosts by itself, and what it reports has the gang move."""

from typing import Any

from scheduler.core.model.commands import Command, ReportHost, SubmitJob
from scheduler.files.job import job_from_mapping
from scheduler.launch.gangs.slow_hosts import SlowHosts
from tests.unit.launch.test_launcher import World, gang, given


class LeadingWorld(World):
    """Also remembers what is reported."""

    def __init__(self) -> None:
        super().__init__(4)
        self.term: int | None = 1
        self.reports: list[ReportHost] = []
        self.times: dict[int, list[float]] = {}
        writer: Any = self
        self.slow_hosts = SlowHosts(writer, lambda _uid, _attempt: self.times, 300.0)

    async def submit(self, command: Command) -> Any:
        if isinstance(command, ReportHost):
            self.reports.append(command)
        return await super().submit(command)

    def steps(self, count: int, slow_rank: int | None = 11) -> None:
        """Some more steps of 16 ranks, one of which takes 1.4 times as long."""
        for step in range(len(self.times), len(self.times) + count):
            of_ranks = [0.2 + 0.001 * ((7 * rank + 3 * step) % 5) for rank in range(16)]
            if slow_rank is not None:
                of_ranks[slow_rank] *= 1.4
            self.times[step] = of_ranks


async def running() -> LeadingWorld:
    world = LeadingWorld()
    await given(world, gang())
    await world.launched()
    return world


async def test_three_looks_that_find_a_slow_host_move_the_gang_off_it() -> None:
    world = await running()
    before = world.hosts()
    for _ in range(3):
        world.steps(8)
        await world.slow_hosts.look()
        await world.settle()
    assert [(each.host, each.signal, each.gpu) for each in world.reports] == [
        (before[1], "straggler", 3)
    ] * 3
    assert world.reports[0].detail.startswith("40% slower at compute of a")
    await world.saved(before[0], 100)
    await world.after(60)
    assert before[1] not in world.hosts()


async def test_no_look_counts_the_steps_of_another() -> None:
    world = await running()
    world.steps(8)
    for _ in range(3):
        await world.slow_hosts.look()
    world.steps(3)  # too few to go by
    await world.slow_hosts.look()
    assert len(world.reports) == 1


async def test_nobody_is_reported_where_nobody_is_slow_or_another_leads() -> None:
    world = await running()
    world.steps(20, slow_rank=None)
    await world.slow_hosts.look()
    world.steps(20)
    world.term = None
    await world.slow_hosts.look()
    assert world.reports == []


async def test_roles_are_compared_with_themselves() -> None:
    """The second of two roles, of one host, takes three times as long, and nobody minds."""
    world = LeadingWorld()
    roles = [
        {"name": "trainer", "parallelism": {"tp": 8}, "command": ["a"]},
        {"name": "server", "parallelism": {"tp": 8}, "command": ["b"]},
    ]
    await given(
        world, SubmitJob(job_from_mapping({"name": "a", "spares": 0, "roles": roles}), "uid")
    )
    for slow_rank in (None, 11):
        world.steps(8, slow_rank)
        for times in world.times.values():
            times[8:] = [3 * seconds if seconds < 0.5 else seconds for seconds in times[8:]]
        await world.slow_hosts.look()
    (report,) = world.reports
    assert (report.host, report.gpu) == (world.hosts()[1], 3)
    assert report.detail.startswith("40% slower at server.compute of a")
