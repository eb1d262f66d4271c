"""Attempts that are over in the log while their ranks may still save and end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.launch.gangs import orders
from scheduler.launch.gangs.gang import LaunchedGang
from scheduler.launch.streams.sessions import AgentSessions

MOST_SAVE_S = 30.0  # for which ranks that are to leave may save first

WriteDown = Callable[[LaunchedGang, Callable[[], None] | None], None]


@dataclass(slots=True, eq=False)
class EndingAttempt:
    """An attempt that is over and whose ranks may still run. `hosts`: those on which ranks may be
    left. `until_s`: while they save, when they are told to stop; afterwards, when they should have
    ended."""

    gang: LaunchedGang
    hosts: set[str]
    grace_s: float
    until_s: float
    saved_before: tuple[int, str] | None = None
    is_saving: bool = False


class EndingAttempts:
    """Attempts that are over, each until nothing of it runs.

    `write_down`: tells the log what an attempt saved last, and then calls its second argument.
    `has_left`: is called whenever an attempt may have left.
    """

    def __init__(
        self,
        sessions: AgentSessions,
        clock: Callable[[], float],
        lease_s: float,
        write_down: WriteDown,
        has_left: Callable[[LaunchedGang | None], None],
    ) -> None:
        self.attempts: list[EndingAttempt] = []
        self._sessions = sessions
        self._clock = clock
        self._lease_s = lease_s
        self._write_down = write_down
        self._has_left = has_left

    @property
    def hosts(self) -> set[str]:
        """Hosts on which ranks may be left."""
        return set[str]().union(*(ending.hosts for ending in self.attempts))

    def end(self, gang: LaunchedGang, grace_s: float, *, saves: bool) -> None:
        """Stop what may still run of an attempt; with `saves` it may save before."""
        ending = EndingAttempt(gang, set(gang.left), grace_s, self._clock(), gang.saved)
        for host in gang.hosts:
            if host not in ending.hosts:
                self._sessions.send(host, orders.forget(orders.key_of(gang)))
        self.attempts.append(ending)
        if saves and gang.can_save:
            ending.is_saving = True
            ending.until_s += MOST_SAVE_S
            for host in gang.hosts:
                self._sessions.send(host, orders.save(gang, MOST_SAVE_S))
        else:
            self._stop(ending)

    def await_end(self, gang: LaunchedGang) -> None:
        """Wait for an attempt that was told to stop before."""
        until_s = self._clock() + self._lease_s
        self.attempts.append(EndingAttempt(gang, set(gang.hosts), 0.0, until_s))

    def find(self, host: str, key: tuple[str, int]) -> EndingAttempt | None:
        """Return the attempt with this key that ran on a host."""
        ended = (ending for ending in self.attempts if ending.gang.key == key)
        return next((ending for ending in ended if host in ending.gang.by_host), None)

    def blocks(self, gang: LaunchedGang) -> bool:
        """Return whether others have yet to leave hosts of this gang, or its own last attempt or
        the last job of its run have yet to end."""
        hosts = set(gang.hosts)
        return any(
            each.gang.uid == gang.uid
            or (gang.lineage and each.gang.lineage == gang.lineage)
            or (not hosts.isdisjoint(each.hosts) and gang.meets(each.gang.gpus))
            for each in self.attempts
        )

    def is_ending(self, host: str, key: tuple[str, int]) -> bool:
        """Return whether ranks of this attempt may be left on a host."""
        return any(each.gang.key == key and host in each.hosts for each in self.attempts)

    def leave_host(self, host: str, key: tuple[str, int]) -> bool:
        """Note that an attempt has ended on a host; return whether it was expected to."""
        for ending in list(self.attempts):
            if ending.gang.key == key and host in ending.hosts:
                ending.hosts.discard(host)
                self._settle(ending)
                return True
        return False

    def keep_known(self, host: str, known: set[tuple[str, int]]) -> None:
        """Note that a host has these attempts and no others."""
        for ending in list(self.attempts):
            if host in ending.hosts and ending.gang.key not in known:
                ending.hosts.discard(host)
                self._settle(ending)

    def note_save(self, ending: EndingAttempt) -> None:
        """Stop ranks that were asked to save once they have."""
        if ending.is_saving and ending.gang.saved != ending.saved_before:
            self._write_down(ending.gang, None)
            self._stop(ending)

    def settle(self) -> None:
        """Look which attempts are over everywhere, now that a host is out of reach."""
        for ending in list(self.attempts):
            self._settle(ending)

    def tick(self, now_s: float) -> None:
        """Stop attempts whose time to save is over, and give up those that should have ended: their
        agents stop them when they prepare the next attempt."""
        for ending in list(self.attempts):
            if now_s >= ending.until_s:
                if ending.is_saving:
                    self._stop(ending)
                else:
                    ending.hosts.clear()
                    self._settle(ending)

    def _stop(self, ending: EndingAttempt) -> None:
        ending.is_saving = False
        ending.until_s = self._clock() + ending.grace_s + self._lease_s
        for host in sorted(ending.hosts):
            self._sessions.send(host, orders.stop(orders.key_of(ending.gang), ending.grace_s))
        self._settle(ending)

    def _settle(self, ending: EndingAttempt) -> None:
        if ending.is_saving or not ending.hosts.isdisjoint(self._sessions.connected):
            return
        if ending not in self.attempts:
            self._has_left(None)
        elif ending.gang.saved != ending.gang.logged:
            # The next job of its run goes on from there: it waits until the log has it.
            self._write_down(ending.gang, lambda: self._settle(ending))
        else:
            self.attempts.remove(ending)
            self._has_left(ending.gang)
