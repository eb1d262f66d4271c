"""Ranks that send what a job sends: tasks of a step over plain sockets, in the hosts of a lab.

`python -m lab.ranks FILE` runs in the keeper's namespaces. It forks a process for each rank into
the network of its host, lets all connect, start together and play their tasks, as often as asked,
and writes a line of JSON for each step: the seconds until its last rank had ended.

A rank is one loop over sockets that never block, one for each pair of ranks and kind of message.
Compute is time that passes, or keeps a core busy: then sockets are polled without a pause. Receives
are posted from the start; a message is sent as soon as the tasks before it have ended, in the order
of tasks on its socket. A ring passes on what it was sent: the next part goes out when the one
before has come in. Standard library alone.
"""

from __future__ import annotations

import heapq
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.keeper import enter_network

FIRST_PORT = 20_000
CHUNK = 1 << 16
CONNECT_S = 20.0


@dataclass(slots=True)
class Piece:
    """The part of a task that one socket carries in one direction. `rounds`: of a ring, else 1."""

    task: int
    size: int
    rounds: int
    moved: int = 0


@dataclass(slots=True)
class RankTask:
    """A task of a rank. `missing`: the tasks before it, and once it runs, its pieces, that have not
    ended."""

    seconds: float
    missing: int
    next: list[int] = field(default_factory=list)
    out: list[tuple[str, Piece]] = field(default_factory=list)
    pieces: int = 0
    ring_in: Piece | None = None
    is_running: bool = False


class Rank:
    """The sockets and tasks of one rank. `program`: its tasks, as `measure` writes them;
    `is_busy`: compute takes a core."""

    def __init__(
        self, program: dict[str, Any], peers: list[dict[str, Any]], is_busy: bool = False
    ) -> None:
        self._program, self._peers, self._me = program, peers, program["rank"]
        self._is_busy = is_busy
        self._selector = selectors.DefaultSelector()
        self._out: dict[str, socket.socket] = {}
        self._in: dict[str, socket.socket] = {}
        self._listener = socket.create_server(("", FIRST_PORT + self._me), backlog=256)
        self._buffer, self._zeros = bytearray(1 << 18), memoryview(bytes(CHUNK))

    def connect(self) -> float:
        """Open a socket for each key of `out`, and take one for each key of `in`. Returns 0."""
        for key, (target, by_nvlink) in self._program["out"].items():
            peer = self._peers[target]
            address = peer["nvlink"] if by_nvlink else peer["address"]
            made = socket.create_connection((address, FIRST_PORT + target), CONNECT_S)
            name = key.encode()
            made.sendall(struct.pack("!I", len(name)) + name)
            self._out[key] = made
        for _ in self._program["in"]:
            taken, _ = self._listener.accept()
            (length,) = struct.unpack("!I", _exactly(taken, 4))
            self._in[_exactly(taken, length).decode()] = taken
        for each in (*self._out.values(), *self._in.values()):
            each.setblocking(False)
        return 0.0

    def step(self) -> float:
        """Play all tasks once. Returns the seconds that it took."""
        player = RankStep(self._program["tasks"])
        began = time.monotonic()
        timers: list[tuple[float, int]] = []
        sending: dict[str, deque[Piece]] = {key: deque() for key in self._out}
        due = {key: deque(player.expected[key]) for key in self._in}
        queued = {key: deque(player.order[key]) for key in self._out}
        ready = [n for n, task in player.tasks.items() if not task.missing]
        for key, taken in self._in.items():
            self._selector.register(taken, selectors.EVENT_READ, key)
        watched: set[str] = set()

        def run(number: int) -> None:
            task = player.tasks[number]
            task.is_running = True
            if task.seconds:
                heapq.heappush(timers, (time.monotonic() + task.seconds, number))
            elif not task.pieces:
                player.end(number, ready)

        while player.left:
            while ready:
                run(ready.pop())
            for key, queue in queued.items():
                while queue and player.tasks[queue[0].task].is_running:
                    sending[key].append(queue.popleft())
            for key, going in sending.items():
                may_send = bool(going) and player.allowed(going[0]) > going[0].moved
                if may_send and key not in watched:
                    self._selector.register(self._out[key], selectors.EVENT_WRITE, key)
                    watched.add(key)
                elif not may_send and key in watched:
                    self._selector.unregister(self._out[key])
                    watched.discard(key)
            if not player.left or ready:
                continue
            wait_s = max(0.0, timers[0][0] - time.monotonic()) if timers else None
            if timers and self._is_busy:
                wait_s = 0.0
            for event, mask in self._selector.select(wait_s):
                if mask & selectors.EVENT_WRITE:
                    self._send(event.data, sending[event.data], player, ready)
                else:
                    self._receive(event.data, due[event.data], player, ready)
            while timers and timers[0][0] <= time.monotonic():
                player.end(heapq.heappop(timers)[1], ready)
        for key in watched:
            self._selector.unregister(self._out[key])
        for taken in self._in.values():
            self._selector.unregister(taken)
        return time.monotonic() - began

    def _send(self, key: str, going: deque[Piece], player: RankStep, ready: list[int]) -> None:
        piece = going[0]
        room = min(CHUNK, player.allowed(piece) - piece.moved)
        if room <= 0:
            return
        try:
            piece.moved += self._out[key].send(self._zeros[:room])
        except BlockingIOError:
            return
        if piece.moved == piece.size:
            going.popleft()
            player.end_piece(piece.task, ready)

    def _receive(self, key: str, due: deque[Piece], player: RankStep, ready: list[int]) -> None:
        while due:
            try:
                size = min(len(self._buffer), due[0].size - due[0].moved)
                count = self._in[key].recv_into(self._buffer, size)
            except BlockingIOError:
                return
            if not count:
                raise ConnectionError(f"{key} was closed")
            due[0].moved += count
            if due[0].moved == due[0].size:
                player.end_piece(due.popleft().task, ready)


class RankStep:
    """The tasks of a rank in one step."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self.tasks: dict[int, RankTask] = {}
        self.order: dict[str, list[Piece]] = {}
        self.expected: dict[str, list[Piece]] = {}
        for told in tasks:
            number = told["id"]
            task = self.tasks[number] = RankTask(told["seconds"], len(told["after"]))
            for key, size, rounds in told["out"]:
                piece = Piece(number, size, rounds)
                self.order.setdefault(key, []).append(piece)
            for key, size, rounds in told["in"]:
                piece = Piece(number, size, rounds)
                self.expected.setdefault(key, []).append(piece)
                task.ring_in = piece if rounds > 1 else None
            task.pieces = len(told["out"]) + len(told["in"])
        for told in tasks:
            for before in told["after"]:
                self.tasks[before].next.append(told["id"])
        self.left = len(tasks)

    def allowed(self, piece: Piece) -> int:
        """Return how many bytes of a piece may have been sent by now; in a ring, one part more than
        has been received."""
        came = self.tasks[piece.task].ring_in
        if piece.rounds == 1 or came is None:
            return piece.size
        # Parts end at size x round // rounds: those that are in, and one more.
        rounds = ((came.moved + 1) * came.rounds - 1) // came.size + 1
        return min(piece.size, piece.size * rounds // piece.rounds)

    def end_piece(self, number: int, ready: list[int]) -> None:
        """Note that a piece of a task has ended, perhaps before the task has begun."""
        task = self.tasks[number]
        task.pieces -= 1
        if not task.pieces and task.is_running:
            self.end(number, ready)

    def end(self, number: int, ready: list[int]) -> None:
        """End a task, and begin the tasks that waited only for it."""
        self.left -= 1
        for after in self.tasks[number].next:
            self.tasks[after].missing -= 1
            if not self.tasks[after].missing:
                ready.append(after)


def _exactly(taken: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = taken.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed while connecting")
        parts += part
    return parts


def _be_rank(kind: type[Rank], told: dict[str, Any], rank: int, heard: int, said: int) -> None:
    """Follow the parent: listen, connect, then a step for each byte that it writes."""
    enter_network(f"/run/netns/{told['ranks'][rank]['namespace']}")
    me = kind(told["programs"][rank], told["ranks"], told["is_busy"])
    stages: list[Callable[[], Any]] = [lambda: 0.0, me.connect]
    while True:
        result = (stages.pop(0) if stages else me.step)()
        os.write(said, struct.pack("!d", result))
        if not os.read(heard, 1):
            return


def main(kind: type[Rank] = Rank) -> None:
    """Run all ranks of the file, of one kind, and print the seconds of each step."""
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    heard: list[int] = []
    said: list[int] = []
    children: list[int] = []
    for rank in range(len(told["ranks"])):
        down, up = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            for end in (*said, *heard, down[1], up[0]):
                os.close(end)
            code = 1
            try:
                _be_rank(kind, told, rank, down[0], up[1])
                code = 0
            except (OSError, ConnectionError) as error:
                sys.stderr.write(f"rank {rank}: {error}\n")
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
        os.close(down[0])
        os.close(up[1])
        said.append(down[1])
        heard.append(up[0])
    try:
        for stage in range(told["steps"] + 2):
            seconds = []
            for end in heard:
                word = os.read(end, 8)
                if len(word) < 8:
                    sys.exit("a rank has ended")
                seconds.append(struct.unpack("!d", word)[0])
            if stage > 1:
                sys.stdout.write(json.dumps({"seconds": max(seconds)}) + "\n")
                sys.stdout.flush()
            if stage < told["steps"] + 1:
                for end in said:
                    os.write(end, b"g")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
