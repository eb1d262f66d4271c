"""A gang without GPUs in torch: all-reduces over gloo, step by step, and a checkpoint by rank 0.

    run:
      command: [/opt/train/bin/python3, examples/gang/train_torch.py, --checkpoints, /scratch/demo]
      warm: [torch, torch.distributed]

The rendezvous is static: muster has said who is rank 0, where it listens and who else there is.
Runs as well below `torchrun`, with `per_host: 1`.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from muster import progress

SIZE = 100_000  # numbers in a vector


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--checkpoints", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    start, weights = 0, torch.zeros(SIZE)
    found = progress.resume(options.checkpoints) if rank == 0 else None
    if found is not None:
        state = torch.load(found.path / "state.pt", weights_only=True)
        start, weights = state["step"], state["weights"]
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    begin = torch.tensor([start])
    dist.broadcast(begin, 0)
    dist.broadcast(weights, 0)
    start = int(begin)
    attempt = os.environ.get("MUSTER_ATTEMPT", "1")
    print(f"attempt {attempt}: from step {start} at {time.time():.3f}", flush=True)
    for step in range(start + 1, options.steps + 1):
        time.sleep(options.step_s)
        gradient = torch.full((SIZE,), float(rank + step))
        dist.all_reduce(gradient)
        weights += gradient / dist.get_world_size()
        if rank == 0:
            progress.report(step)
            if step % options.save_every == 0 or step == options.steps or progress.should_save():
                with progress.saving(options.checkpoints, step) as folder:
                    torch.save({"step": step, "weights": weights}, folder / "state.pt")
    print(f"done: {options.steps} steps, weights {weights[0]:.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
