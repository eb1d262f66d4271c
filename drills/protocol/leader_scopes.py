"""How far the log with its leaders is searched, and which rules are switched off to see it."""

from __future__ import annotations

from typing import Final, NamedTuple

from drills.protocol.leaders import Rules, Scope, cancel, fail, submit

_HOST: Final = "z0-r0-h0"
_SUBMIT: Final = (submit("a", 2),)
_MAKE_AND_CANCEL: Final = (submit("a", 2), cancel("a", (0,)))
_GANGS: Final = (submit("a", 2), submit("b", 1), fail(_HOST, (0,)))

REPEATS: Final = Scope("a call comes again", _MAKE_AND_CANCEL, repeats=1)
SUCCESSION: Final = Scope("the lead is lost", _MAKE_AND_CANCEL, lost_leads=1, repeats=1)
GANGS: Final = Scope("gangs and a host that fails", _GANGS)
SWAPS: Final = Scope("gangs, a host that fails, one to spare", _GANGS, hosts=4)

QUICK: Final = (REPEATS, SUCCESSION, SWAPS)
WIDE: Final = (
    GANGS,
    Scope("every fault once, one call", _SUBMIT, 3, 2, 1, 1, 1, 1, 1),
    Scope("crash, pause and lost answer", _MAKE_AND_CANCEL, crashes=1, pauses=1, lost_answers=1),
    Scope("gangs, the lead is lost", _GANGS, lost_leads=1),
    Scope("gangs with a host to spare, a crash", _GANGS, hosts=4, crashes=1),
    Scope("gangs, a pause and a call again", _GANGS, pauses=1, repeats=1),
)


class Mutation(NamedTuple):
    """Rules that are switched off, and where that shows. `steps`: of the shortest way there; 0: it
    does not show."""

    name: str
    rules: Rules
    scope: Scope
    steps: int
    fault: str = ""


MUTATIONS: Final = (
    Mutation(
        "an append does not compare its term",
        Rules(append_compares_term=False),
        SUCCESSION,
        6,
        "request 0 was acknowledged, and the leader does not know of it",
    ),
    Mutation(
        "an append does not compare its version",
        Rules(append_compares_version=False),
        Scope("the lead is lost, one call", _SUBMIT, lost_leads=1),
        0,
    ),
    Mutation(
        "an append compares neither",
        Rules(append_compares_term=False, append_compares_version=False),
        SUCCESSION,
        6,
        "request 0 was acknowledged, and the leader does not know of it",
    ),
    Mutation(
        "a new leader does not read the log first",
        Rules(leader_reads_the_log_first=False),
        SUCCESSION,
        6,
        "request 0 was acknowledged, and the leader does not know of it",
    ),
    Mutation(
        "the answer does not wait for the append",
        Rules(answer_after_append=False),
        REPEATS,
        2,
        "request 0 was acknowledged, and the log does not have it",
    ),
    Mutation(
        "a refusal does not ask the store who leads",
        Rules(refusals_ask_the_store=False),
        SUCCESSION,
        8,
        "request 1 was refused though it had to be accepted",
    ),
    Mutation(
        "a request id is not remembered",
        Rules(requests_have_ids=False),
        REPEATS,
        8,
        "request 0 took effect 2 times",
    ),
    Mutation(
        "commit does not check again",
        Rules(commit_checks_again=False),
        GANGS,
        7,
        "a begins on host 0, which is out of service",
    ),
)
