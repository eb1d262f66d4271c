"""Health under random reports: who may begin where, and what is remembered."""

from dataclasses import replace
from random import Random

import pytest

from placement.fabric import hostset
from scheduler.core import JobState, State
from scheduler.core.model.commands import Command, LoadHealth, LoadTenants, ReportHost
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    HostMoved,
    JobStarted,
    SparesChanged,
)
from scheduler.core.model.lifecycle import ALLOWS, HOST_MOVES, RUNS, Allows, HostMove
from scheduler.core.policies.health import HealthPolicy, LemonAction, LemonPolicy
from scheduler.core.policies.health_signals import SIGNALS, XID
from scheduler.core.policies.tenants import OPEN, PriorityClass
from tests.build import cancel, cordon, drain, end, exactly, submit, uncordon
from tests.property.driver import Driver
from tests.property.laws import FABRIC

PLAIN = [name for name, signal in SIGNALS.items() if not signal.is_domain and name != XID]
SWITCHES = [name for name, signal in SIGNALS.items() if signal.is_domain]


class Cluster(Driver):
    """`cordons`: hosts that an operator took out, and has not taken back; `allowed`: what hosts
    were good for at any time."""

    def __init__(self, policy: HealthPolicy) -> None:
        self.cordons, self.allowed = set[str](), set[Allows]()
        self.begin(FabricLoaded(0, FABRIC.spec))
        spot = replace(OPEN, classes=(PriorityClass("spot", 0, True),))
        self.ask(LoadTenants(spot))
        self.ask(LoadHealth(policy))

    def check_event(self, before: State, event: Event) -> None:
        check_event(before, event)

    def act(self, random: Random) -> None:
        """Some come three times, which is what counts of some errors."""
        for _ in range(random.randint(0, 6)):
            command = any_command(random)
            for event in (e for _ in range(random.choice((1, 1, 3))) for e in self.ask(command)):
                if isinstance(event, HostMoved) and event.move is HostMove.UNCORDON:
                    self.cordons.discard(event.host)
                elif isinstance(event, HostMoved) and event.move in TAKEN_OUT:
                    self.cordons.add(event.host)
            self.check_hosts()

    def turn(self) -> None:
        """What is decided on a state commits on it, and comes to an end."""
        plan = self.until_settled()
        assert plan.next_decision_ns is None or plan.next_decision_ns > self.now_ns
        self.check_hosts()

    def check_hosts(self) -> None:
        """An operator's cordon holds, the sets are what the table says, and what runs runs where it
        may."""
        allows = [ALLOWS[self.state.host(index).state] for index in range(FABRIC.host_count)]
        for name in self.cordons:
            assert allows[FABRIC.index_by_name[name]] is Allows.NOTHING, name
        for found, what in (
            (self.state.index.unhealthy, Allows.NOTHING),
            (self.state.index.probation, Allows.PREEMPTIBLE),
            (self.state.index.golden, Allows.LARGE_FIRST),
        ):
            assert found == hostset.of(i for i, each in enumerate(allows) if each is what)
        for job in self.state.in_state(JobState.RUNNING):
            assert all(self.state.host(host).state in RUNS for host in job.hosts)
        self.allowed |= {*allows}


TAKEN_OUT = (HostMove.CORDON, HostMove.DRAIN)


def any_command(random: Random) -> Command:
    name, host = random.choice("abcd"), random.choice(FABRIC.hosts)
    job = submit(
        name,
        random.choice((1, 2, 4, 6)),
        spares=random.choice((exactly(0), exactly(1))),
        priority_class=random.choice(("", "spot")),
        limit_s=random.choice((None, 3_600)),
    )
    reports = [
        ReportHost(host, random.choice(PLAIN), "x"),
        ReportHost(host, random.choice(("repaired", "stress-test-passed"))),
        ReportHost(host, XID, xid=random.choice((13, 63, 79, 94))),
        ReportHost(random.choice(("z0", "z0-r0", "z1-r1")), random.choice(SWITCHES)),
    ]
    moves = [cordon(host), drain(host), uncordon(host)]
    return random.choice([job, job, end(name), cancel(name), *reports, *moves])


@pytest.mark.parametrize("action", LemonAction)
def test_who_may_begin_on_a_host_and_what_is_remembered_of_it(action: LemonAction) -> None:
    allowed = set[Allows]()
    for seed in range(4):
        random = Random(seed)
        policy = HealthPolicy(
            clear_s=random.choice((60, 3_600)),
            has_burn_in=bool(seed % 2),
            golden_s=random.choice((0, 60)),
            large_hosts=2,
            lemons=LemonPolicy(at_least=1, action=action),
        )
        cluster = Cluster(policy)
        cluster.live(random, 60, paces_s=(1, 100, 4_000, 100_000))
        allowed |= cluster.allowed
    assert allowed == {*Allows}


def check_event(state: State, event: Event) -> None:
    """Whoever begins on a host is allowed to by its state; moves are those of the table."""
    if isinstance(event, HostMoved):
        index = FABRIC.index_by_name[event.host]
        assert event.move in HOST_MOVES[state.host(index).state]
    begun: set[str] = set()
    if isinstance(event, JobStarted):
        begun = {*event.hosts, *event.spares}
    elif isinstance(event, GangSwapped):
        begun = {swap.joined for swap in event.swaps}
    elif isinstance(event, GangResized | SparesChanged):
        held = state.jobs[event.name].allocation
        names = (*getattr(event, "hosts", ()), *event.spares)
        begun = {n for n in names if not hostset.has(held, FABRIC.index_by_name[n])}
    for name in begun:
        allows = ALLOWS[state.host(FABRIC.index_by_name[name]).state]
        assert allows is not Allows.NOTHING
        if allows is Allows.PREEMPTIBLE:
            assert state.jobs[event.name].is_preemptible  # type: ignore[union-attr]
