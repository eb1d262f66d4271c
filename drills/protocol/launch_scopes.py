"""How far launches are searched, and which rules are switched off to see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from drills.protocol.launches import LaunchFaults, LaunchScope, cancel, drain
from scheduler.agent.agent import Agent
from scheduler.launch import cut_off
from scheduler.launch.gangs.ending import EndingAttempts
from scheduler.launch.launcher import AgentLauncher

_HOST: Final = "z0-r0-h0"
_PAIR: Final = (("a", 2, 0),)

RANK: Final = LaunchScope("a rank fails", LaunchFaults(rank_failures=1))
BREAK: Final = LaunchScope("a stream breaks", LaunchFaults(breaks=1))
CANCEL: Final = LaunchScope(
    "the job is cancelled", LaunchFaults(commands=1), 2, commands=(cancel("a"),)
)
DRAIN: Final = LaunchScope(
    "its host is drained", LaunchFaults(commands=1), commands=(drain(_HOST),)
)
END: Final = LaunchScope("the ranks end", LaunchFaults(rank_ends=1))
REFUSAL: Final = LaunchScope("an agent refuses", LaunchFaults(refusals=1))
RESTART: Final = LaunchScope("the server crashes", LaunchFaults(crashes=1))
CUT: Final = LaunchScope("a host is cut off", LaunchFaults(cuts=1))
CUT_KILL: Final = LaunchScope(
    "a host is cut off, its ranks end with the lease", LaunchFaults(cuts=1), keeps_ranks=False
)
AGENT_KILL: Final = LaunchScope(
    "an agent crashes, its ranks end with the lease",
    LaunchFaults(agent_crashes=1),
    keeps_ranks=False,
)
BLACKOUT: Final = LaunchScope("all hosts are cut off", LaunchFaults(blackouts=1))
BLACKOUT_CRASH: Final = LaunchScope(
    "all hosts are cut off, the server crashes", LaunchFaults(blackouts=1, crashes=1), 2, _PAIR
)
FREEZE: Final = LaunchScope("a host stands still", LaunchFaults(freezes=1))
AGENT: Final = LaunchScope("an agent crashes", LaunchFaults(agent_crashes=1))
DEATH: Final = LaunchScope("a host dies and forgets", LaunchFaults(deaths=1))
REBOOT: Final = LaunchScope("a host dies", LaunchFaults(reboots=1))
SUCCESSION: Final = LaunchScope("the leader stands still", LaunchFaults(successions=1), servers=2)
PAIR: Final = LaunchScope("two hosts, a rank fails", LaunchFaults(rank_failures=1), 3, _PAIR)
NEXT_JOB: Final = LaunchScope(
    "a stream breaks, another job gets the host",
    LaunchFaults(breaks=1, commands=1),
    1,
    (("a", 1, 0), ("b", 1, 0)),
    commands=(cancel("a"),),
)
TWO_TERMS: Final = LaunchScope(
    "the leader stands still, streams break", LaunchFaults(successions=1, breaks=2), servers=2
)
AGENT_AND_CUT: Final = LaunchScope(
    "an agent crashes, a host is cut off", LaunchFaults(agent_crashes=1, cuts=1)
)

QUICK: Final = (RANK, BREAK, CANCEL, DRAIN, END, REFUSAL, RESTART)
WIDE: Final = (
    BLACKOUT,
    BLACKOUT_CRASH,
    CUT,
    CUT_KILL,
    AGENT_KILL,
    FREEZE,
    AGENT,
    DEATH,
    REBOOT,
    SUCCESSION,
    PAIR,
    NEXT_JOB,
    TWO_TERMS,
    AGENT_AND_CUT,
    LaunchScope("two jobs, a host is cut off", LaunchFaults(cuts=1), 2, (("a", 1, 0), ("b", 1, 0))),
    LaunchScope("two hosts and a spare, a host dies", LaunchFaults(reboots=1), 3, (("a", 2, 1),)),
    LaunchScope(
        "two hosts, one stands still, a rank fails",
        LaunchFaults(freezes=1, rank_failures=1),
        3,
        _PAIR,
    ),
    LaunchScope(
        "two hosts, one is drained, one dies",
        LaunchFaults(deaths=1, commands=1),
        3,
        _PAIR,
        commands=(drain(_HOST),),
    ),
    LaunchScope(
        "the server crashes, a stream breaks, a drain",
        LaunchFaults(crashes=1, commands=1, breaks=1),
        commands=(drain(_HOST),),
    ),
    LaunchScope(
        "a host is cut off, the job is cancelled",
        LaunchFaults(cuts=1, commands=1),
        commands=(cancel("a"),),
    ),
)

Patch = Callable[[pytest.MonkeyPatch], None]


class LaunchMutation(NamedTuple):
    """A rule that is switched off by `patch`, and where that shows. `steps`: of the
    shortest way there."""

    name: str
    patch: Patch
    scope: LaunchScope
    steps: int
    fault: str  # as it is put
    is_settled: bool = False  # it shows once nothing fails any more


def _instead(owner: Any, name: str, new: Any) -> Patch:
    return lambda patch: patch.setattr(owner, name, new)


def _takes_any_term(patch: pytest.MonkeyPatch) -> None:
    renew = Agent._renew

    def take(agent: Agent, lease: Any) -> None:
        agent._epoch = min(agent._epoch, lease.epoch)
        renew(agent, lease)

    patch.setattr(Agent, "_renew", take)


def _goes_on_after_its_lease(patch: pytest.MonkeyPatch) -> None:
    check = Agent._check_lease

    def forget(agent: Agent) -> None:
        check(agent)
        agent._is_given_up = False

    patch.setattr(Agent, "_check_lease", forget)


LAUNCH_MUTATIONS: Final = (
    LaunchMutation(
        "an agent does not end its ranks with its lease",
        _instead(Agent, "_check_lease", lambda _: None),
        CUT_KILL,
        17,
        "the ranks of uid-a.1 run on z0-r0-h0 without a lease",
    ),
    LaunchMutation(
        "an agent that starts again forgets its lease",
        _instead(Agent, "_lease_found", lambda _: 0.0),
        AGENT_KILL,
        5,
        "the ranks of uid-a.1 run on z0-r0-h0 without a lease",
    ),
    LaunchMutation(
        "an agent carries out an order from before its lease ended",
        _goes_on_after_its_lease,
        CUT_KILL,
        17,
        "the ranks of uid-a.1 run on z0-r0-h0 without a lease",
    ),
    LaunchMutation(
        "a server takes all hosts for lost that are silent together",
        _instead(cut_off, "cut_domains", lambda *_: {}),
        BLACKOUT,
        6,
        "a is stopped, and only the servers were cut off",
    ),
    LaunchMutation(
        "an agent takes words of any term",
        _takes_any_term,
        TWO_TERMS,
        9,
        "z0-r0-h0 does what term 1 says after term 2",
    ),
    LaunchMutation(
        "an agent prepares beside what runs",
        _instead(Agent, "_end_others", lambda *_: True),
        NEXT_JOB,
        13,
        "z0-r0-h0 runs uid-a.1 and uid-b.1",
    ),
    LaunchMutation(
        "an attempt does not wait until the one before has left",
        _instead(EndingAttempts, "blocks", lambda *_: False),
        DRAIN,
        7,
        "attempt 2 is launched while attempt 1 runs on z0-r0-h0, which the leader reaches",
    ),
    LaunchMutation(
        "nor for one on a host that comes back",
        _instead(AgentLauncher, "_wait_for_end", lambda *_: None),
        CUT,
        13,
        "attempt 2 is launched while attempt 1 runs on z0-r0-h0, which the leader reaches",
    ),
    LaunchMutation(
        "a late word of an attempt that is over is not answered",
        _instead(AgentLauncher, "_late", lambda *_: None),
        FREEZE,
        5,
        "z0-r0-h0 is never told to forget uid-a.1",
        is_settled=True,
    ),
)
