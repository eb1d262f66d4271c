"""make drill-failover: break the leader again and again, and check what everybody saw.

    python -m drills.failover --rounds 10 --lease-s 5

Three servers, clients that create, cancel and read all the while. Each round breaks the
leader one way, waits for the next leader, mends, and then checks: calls on each name are
linearizable; terms never fall along the log, so no two leaders' writes are mixed; every
acknowledged create is in the log once; all servers and a replay of the log agree.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drills.linearizable import is_linearizable
from drills.load import RecordedLoad
from drills.replicas import ReplicaProcess, Trio
from scheduler.client import Client
from scheduler.eventlog.recovery import replayed
from scheduler.eventlog.store import open_store
from tests.postgres import Cluster, cluster

BEFORE_S, AFTER_S = 1.0, 1.0


@dataclass
class Tally:
    """Totals of all rounds: seconds from the fault, by its kind."""

    led_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrote_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    rounds: int = 0
    histories: int = 0
    calls: int = 0
    unanswered: int = 0


def _kill(leader: ReplicaProcess) -> None:
    leader.end(signal.SIGKILL)


def _stop(leader: ReplicaProcess) -> None:
    assert leader.end(signal.SIGTERM) == 0, leader.log.read_text()


# How each kind breaks the leader, and how that is mended.
Fault = tuple[Callable[[ReplicaProcess], None], Callable[[ReplicaProcess], None]]
FAULTS: dict[str, Fault] = {
    "killed": (_kill, ReplicaProcess.start),
    "paused": (lambda s: s.send_signal(signal.SIGSTOP), lambda s: s.send_signal(signal.SIGCONT)),
    "cut off": (lambda s: s.proxy.cut(), lambda s: s.proxy.heal()),
    "stopped": (_stop, ReplicaProcess.start),
}


def drill(trio: Trio, kinds: Sequence[str], rounds: int, say: Callable[[str], None]) -> Tally:
    """Run `rounds` rounds of each kind, and check each."""
    tally = Tally()
    for number in range(rounds):
        for kind in kinds:
            _round(trio, kind, tally)
            say(
                f"round {number + 1}: leader {kind}, next leader after"
                f" {tally.led_s[kind][-1]:.2f} s, first write after {tally.wrote_s[kind][-1]:.2f} s"
            )
    return tally


def _round(trio: Trio, kind: str, tally: Tally) -> None:
    load = RecordedLoad(trio.addresses, tally.rounds, f"r{tally.rounds}")
    load.start()
    try:
        time.sleep(BEFORE_S)
        leader = trio.leader()
        began_s = time.monotonic()
        FAULTS[kind][0](leader)
        trio.leader(other_than=leader)
        tally.led_s[kind].append(time.monotonic() - began_s)
        tally.wrote_s[kind].append(load.probe_s(began_s))
        time.sleep(AFTER_S)
        FAULTS[kind][1](leader)
        time.sleep(AFTER_S)
    finally:
        load.finish()
    trio.settled_version()
    check(trio, load)
    tally.rounds += 1
    tally.histories += len(load.histories)
    tally.calls += sum(len(calls) for calls in load.histories.values())
    tally.unanswered += sum(c.is_open for calls in load.histories.values() for c in calls)


def check(trio: Trio, load: RecordedLoad) -> None:
    """Check one round. Raises: AssertionError with what is wrong."""
    for name, calls in load.histories.items():
        assert is_linearizable(calls), f"{name} is not linearizable: {calls}"
    _check_log(trio, load)
    _check_states(trio)


def _check_log(trio: Trio, load: RecordedLoad) -> None:
    rows = trio.rows()
    assert [version for version, *_ in rows] == list(range(1, len(rows) + 1))
    terms = [term for _, term, *_ in rows]
    assert terms == sorted(terms), "writes of two leaders are mixed"
    bodies = [json.loads(body) for _, _, kind, body in rows if kind == "JobSubmitted"]
    times = Counter(body["uid"] for body in bodies)
    for mark, uid in load.acknowledged.items():
        assert times[uid] == 1, f"create {mark} was acknowledged and is {times[uid]} times there"


def _check_states(trio: Trio) -> None:
    """Every server has what a replay of the log gives, and lists every job of the log."""
    version = trio.settled_version()
    store = open_store(trio.database)
    try:
        state = replayed(store).state
    finally:
        store.close()
    assert state.version == version
    kept = {job.uid: job.attempt for job in (*state.jobs.values(), *state.ended.values())}
    submitted = {
        json.loads(body)["uid"] for *_, kind, body in trio.rows() if kind == "JobSubmitted"
    }
    for server in trio.servers:
        with Client(server.address, deadline_s=60) as client:  # one has just been started
            seen = [(job.uid, job.attempt) for job in client.list_jobs()]
        assert not (wrong := differences(seen, kept, submitted)), f"{server.name}: {wrong}"


def differences(
    seen: Sequence[tuple[str, int]], kept: Mapping[str, int], submitted: Collection[str]
) -> list[str]:
    """Return how a server's list of (uid, attempt) differs from the log.

    `kept`: attempts of jobs in the state. The state drops jobs that ended long ago; the list has
    them too, from the store.
    """
    times = Counter(uid for uid, _ in seen)
    wrong = [f"job {uid} is listed {count} times" for uid, count in times.items() if count > 1]
    wrong += [f"job {uid} is not listed" for uid in sorted(set(submitted) - times.keys())]
    wrong += [f"job {uid} is not in the log" for uid in sorted(times.keys() - set(submitted))]
    for uid, attempt in seen:
        if uid in kept and kept[uid] != attempt:
            wrong.append(f"job {uid} is in attempt {kept[uid]}, listed in {attempt}")
    return wrong


def report(tally: Tally) -> str:
    lines = [f"{'leader is':10}{'rounds':>8}{'next leader':>30}{'first write':>30}"]
    lines += [f"{'':18}{'min / median / max, s':>30}{'min / median / max, s':>30}"]
    for kind, led_s in tally.led_s.items():
        spread = f"{_spread(led_s):>30}{_spread(tally.wrote_s[kind]):>30}"
        lines.append(f"{kind:10}{len(led_s):>8}{spread}")
    lines.append(
        f"{tally.histories} histories of {tally.calls} calls are linearizable;"
        f" {tally.unanswered} calls had no answer"
    )
    return "\n".join(lines)


def _spread(found_s: Sequence[float]) -> str:
    return f"{min(found_s):.2f} / {statistics.median(found_s):.2f} / {max(found_s):.2f}"


def run(running: Cluster, kinds: Sequence[str], rounds: int, lease_s: int) -> Tally:
    """Start three servers, drill them, and end them in good order."""
    with tempfile.TemporaryDirectory() as folder:
        trio = Trio(Path(folder), running, lease_s)
        try:
            trio.start()
            tally = drill(trio, kinds, rounds, lambda line: print(line, flush=True))
            assert trio.stop() == [0, 0, 0]
            return tally
        finally:
            trio.abandon()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--lease-s", type=int, default=5)
    parser.add_argument("--only", choices=FAULTS, action="append")
    given = parser.parse_args()
    with cluster() as running:
        print(report(run(running, given.only or list(FAULTS), given.rounds, given.lease_s)))


if __name__ == "__main__":
    main()
