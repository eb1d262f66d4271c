"""A gang without GPUs whose ranks have states of their own: saved by all, and copied in memory.

    checkpoint: {peers: 1, peer_interval_s: 1}
    run:
      command: [python3, examples/gang/train_sharded.py, --checkpoints, /scratch/demo]

Every rank changes a part of its state in every step, and begins a later attempt with what it wrote
itself: in memory where agents have kept that (`agents.copies_gb` of the server), else in storage.
At the end it says whether its state is what so many steps make of it.
"""

from __future__ import annotations

import argparse
import array
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from train import RANK, WORLD, all_reduce, meet

from muster import progress

CELL = 1 << 20  # bytes that a step changes


class TrainState:
    """State of this rank: each cell has the number of the last step that changed it."""

    def __init__(self, size_mb: int) -> None:
        self.step = 0
        self.data = bytearray(size_mb * CELL)

    def advance(self) -> None:
        """Make one step."""
        self.step += 1
        at = (self.step + RANK) * CELL % max(CELL, len(self.data))
        self.data[at : at + CELL] = array.array("q", [self.step]).tobytes() * (CELL // 8)

    def write(self, path: Path, *, is_synced: bool = False) -> None:
        with path.open("wb") as file:
            file.write(array.array("q", [self.step]).tobytes())
            file.write(self.data)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, path: Path) -> None:
        with path.open("rb") as file:
            (self.step,) = array.array("q", file.read(8))
            file.readinto(self.data)

    def is_as_meant(self) -> bool:
        """Whether it is what steps from the first on make of it."""
        again = TrainState(len(self.data) // CELL)
        for _ in range(self.step):
            again.advance()
        return again.data == self.data


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--state-mb", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--copy-every", type=int, default=10, help="0: never")
    parser.add_argument("--checkpoints", type=Path, required=True)
    options = parser.parse_args()
    began_s = time.time()
    root, state, source = options.checkpoints, TrainState(options.state_mb), "nothing"
    saved = progress.resume(root if RANK == 0 else None)
    if (copy := progress.copied()) is not None:
        state.read(copy.path)
        source = f"memory, {copy.path.parent.name}"
    elif saved is not None:
        state.read(saved.path / f"rank{RANK}")
        source = "storage"
    loaded_s = time.time()
    peers = meet()

    def vote(value: float) -> float:
        """Return the sum of what all ranks say, once they have."""
        return float(all_reduce(peers, array.array("d", [value]))[0])

    if vote(state.step) != WORLD * state.step:
        sys.exit(f"rank {RANK}: others are not at step {state.step}")
    attempt = os.environ.get("MUSTER_ATTEMPT", "1")
    print(f"attempt {attempt}: from step {state.step} at {time.time():.3f}", flush=True)
    print(f"{source}: loaded in {loaded_s - began_s:.3f} s", flush=True)
    while state.step < options.steps:
        time.sleep(options.step_s)
        state.advance()
        vote(state.step)
        if RANK == 0:
            progress.report(state.step)
        if options.copy_every and state.step % options.copy_every == 0:
            with progress.copying(state.step) as path:
                state.write(path)
        if state.step % options.save_every == 0:
            save(root, state, vote)
    print(f"done: {state.step} steps, {'as meant' if state.is_as_meant() else 'WRONG'}", flush=True)


def save(root: Path, state: TrainState, vote: Callable[[float], float]) -> None:
    """Write the state of all ranks into storage; rank 0 gives it its name."""
    if RANK:
        folder = progress.partial_folder(root, state.step)
        folder.mkdir(parents=True, exist_ok=True)
        state.write(folder / f"rank{RANK}", is_synced=True)
        vote(0.0)
        return
    with progress.saving(root, state.step) as folder:
        state.write(folder / f"rank{RANK}", is_synced=True)
        vote(0.0)


if __name__ == "__main__":
    main()
