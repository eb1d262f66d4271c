"""Ranks as `lab.ranks` has them whose messages go by gloo, of torch.distributed.

`python -m lab.gloo FILE` takes what `lab.ranks` takes. Between the loop of a rank and gloo are a
socket pair and a thread for each pair of ranks, kind of message and direction: all messages of a
step have their receives posted one step ahead, and a message, or a part of a ring, goes out when
the loop has written all of it. It counts as sent when its thread has read it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from torch import distributed

from lab.ranks import Piece, Rank, RankStep, main


class GlooRank(Rank):
    """A rank whose sockets lead to threads that send and receive by gloo."""

    def connect(self) -> float:
        """Meet the other ranks, over network cards, and over NVLink those of the rack. Returns 0.

        Raises: ConnectionError where gloo does.
        """
        try:
            groups = self._groups()
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error
        step = RankStep(self._program["tasks"])
        ways: tuple[tuple[Any, ...], ...] = (
            (self._program["out"], self._out, step.order, _send),
            (self._program["in"], self._in, step.expected, _receive),
        )
        for told, sockets, pieces, way in ways:
            tags: defaultdict[int, int] = defaultdict(int)
            for key, (peer, by_nvlink) in sorted(told.items()):  # alike at both ends
                tags[peer] += 1
                sockets[key], far = socket.socketpair()
                sockets[key].setblocking(False)
                where = {"group": groups[by_nvlink], "tag": tags[peer]}
                given = (far, _parts(pieces[key]), peer, where)
                Thread(target=way, args=given, daemon=True).start()
        return 0.0

    def _groups(self) -> dict[bool, Any]:
        """Return the group that carries messages, by whether they go over NVLink."""
        os.environ["GLOO_SOCKET_IFNAME"] = "nic"
        count = len(self._peers)
        store = distributed.FileStore(str(_store()), count)
        distributed.init_process_group("gloo", store=store, rank=self._me, world_size=count)
        os.environ["GLOO_SOCKET_IFNAME"] = "nvlink"
        racks = defaultdict(list)
        for rank, peer in enumerate(self._peers):
            racks[peer["rack"]].append(rank)
        groups = {False: distributed.group.WORLD}
        for members in racks.values():
            if len({self._peers[rank]["address"] for rank in members}) > 1:
                made = distributed.new_group(members, backend="gloo")
                if self._me in members:
                    groups[True] = made
        return groups


def _store() -> Path:
    """Return the file by which ranks find one another."""
    return Path(sys.argv[1]).with_suffix(".store")


def _parts(pieces: Sequence[Piece]) -> list[int]:
    """Return the bytes of each message, of a ring one a round."""
    ends = ([p.size * n // p.rounds for n in range(p.rounds + 1)] for p in pieces)
    return [after - before for each in ends for before, after in pairwise(each)]


def _send(far: socket.socket, sizes: list[int], peer: int, where: dict[str, Any]) -> None:
    buffer = bytearray(max(sizes))
    whole = torch.frombuffer(buffer, dtype=torch.uint8)
    with far:
        while True:
            for size in sizes:
                far.recv_into(buffer, size, socket.MSG_WAITALL)
                distributed.send(whole[:size], peer, **where)


def _receive(far: socket.socket, sizes: list[int], peer: int, where: dict[str, Any]) -> None:
    buffer = bytearray(max(sizes))
    whole = torch.frombuffer(buffer, dtype=torch.uint8)

    def post(size: int) -> Any:
        return distributed.irecv(whole[:size], peer, **where)

    posted = deque(post(size) for size in sizes)
    with far:
        while True:
            for size in sizes:
                posted.popleft().wait()
                posted.append(post(size))
                far.sendall(memoryview(buffer)[:size])


if __name__ == "__main__":
    _store().unlink(missing_ok=True)
    main(GlooRank)
