"""A gang without GPUs: ranks that sum vectors over plain sockets, step by step, and save.

    run:
      command: [python3, examples/gang/train.py, --steps, "300", --checkpoints, /scratch/demo]

Rank 0 listens at MASTER_ADDR:MASTER_PORT and the others connect; a step is an all-reduce: rank 0
adds up what all send and sends the sum back. When a rank ends, its connection does, and all others
end for its sake, as ranks of a real training do.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Sequence

from muster import progress

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
WHERE = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
SIZE = 1_000  # numbers in a vector


def meet() -> list[socket.socket]:
    """The connections of rank 0 to all others, of each other rank to rank 0."""
    if RANK == 0:
        with socket.create_server(WHERE, backlog=WORLD) as listening:
            peers = dict(accepted(listening) for _ in range(WORLD - 1))
        return [peers[rank] for rank in sorted(peers)]
    until_s = time.monotonic() + 30
    while True:
        try:
            peer = socket.create_connection(WHERE)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(struct.pack("=i", RANK))
            return [peer]
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.02)


def accepted(listening: socket.socket) -> tuple[int, socket.socket]:
    peer, _ = listening.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return struct.unpack("=i", received(peer, 4))[0], peer


def received(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            sys.exit(f"rank {RANK}: a peer has gone")
        data += piece
    return bytes(data)


def all_reduce(peers: Sequence[socket.socket], vector: array.array[float]) -> array.array[float]:
    size = len(vector) * vector.itemsize
    if RANK:
        peers[0].sendall(vector.tobytes())
        return array.array("d", received(peers[0], size))
    total = list(vector)
    for peer in peers:
        part = array.array("d", received(peer, size))
        total = [a + b for a, b in zip(total, part, strict=True)]
    summed = array.array("d", total)
    for peer in peers:
        peer.sendall(summed.tobytes())
    return summed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--save-s", type=float, default=0.0, help="how long writing takes")
    parser.add_argument("--slow-rank", type=int, default=-1, help="a rank that computes for longer")
    parser.add_argument("--slower", type=float, default=1.5, help="times as long")
    parser.add_argument("--checkpoints", required=True)
    options = parser.parse_args()
    start, value = 0, 0.0
    found = progress.resume(options.checkpoints) if RANK == 0 else None
    if found is not None:
        state = json.loads((found.path / "state.json").read_text())
        start, value = state["step"], state["value"]
    peers = meet()
    # All begin where rank 0 does: what it sums up is its start, and nothing of the others.
    begin = array.array("d", [float(start), value])
    start_f, value = all_reduce(peers, begin if RANK == 0 else array.array("d", [0.0, 0.0]))
    start = int(start_f)
    attempt = os.environ.get("MUSTER_ATTEMPT", "1")
    print(f"attempt {attempt}: from step {start} at {time.time():.3f}", flush=True)
    for step in range(start + 1, options.steps + 1):
        with progress.computing(step):  # what it does before it waits for the others
            time.sleep(options.step_s * (options.slower if options.slow_rank == RANK else 1))
        summed = all_reduce(peers, array.array("d", [float(RANK + step)] * SIZE))
        expected = WORLD * step + WORLD * (WORLD - 1) / 2
        if summed[0] != expected or summed[-1] != expected:
            sys.exit(f"rank {RANK}: step {step}: the sum is {summed[0]}, not {expected}")
        value += expected
        if RANK == 0:
            progress.report(step)
            if step % options.save_every == 0 or step == options.steps or progress.should_save():
                with progress.saving(options.checkpoints, step) as folder:
                    (folder / "state.json").write_text(json.dumps({"step": step, "value": value}))
                    time.sleep(options.save_s)
    print(f"done: {options.steps} steps, value {value:.0f}", flush=True)


if __name__ == "__main__":
    main()
