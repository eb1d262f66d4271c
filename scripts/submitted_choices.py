"""How good submitters' parallelism is by `muster estimate --sweep` (docs/parallelism.md).

python -m scripts.submitted_choices STEPS.csv [--most-gpus 1024]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import median

from muster.structs import replace
from placement import sweep
from placement.fabric import hostset
from placement.workload.memory import fits
from scheduler.files.step_table import read_table

CLOSE = 0.05  # of the best step


def main() -> None:
    """Print a line a configuration, and how many are within CLOSE of the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--most-gpus", type=int, default=1_024)
    given = parser.parse_args()
    slower = defaultdict[str, list[float]](list)
    seen = set()
    for row in read_table(given.table):
        if not row.name.startswith("mlperf") or row.request is None or row.fabric is None:
            continue
        gpus = row.request.parallelism.world_size
        training = replace(row.request.training, gradient_dtype="bf16")
        request = replace(row.request, training=training)
        if gpus > given.most_gpus or (request, row.fabric.digest) in seen:
            continue
        seen.add((request, row.fabric.digest))
        found = sweep(row.fabric, hostset.full(row.fabric.host_count), request, gpus, 1)
        if not found.best or found.own is None:
            print(row.name, row.cells["model"], gpus, "no choice fits")
            continue
        share = found.own.step.seconds / found.best[0].step.seconds - 1
        model = row.cells["model"]
        slower[model].append(share)
        p, best = found.best[0].request.parallelism, found.best[0].request
        assert best.batch is not None
        print(
            *(row.name, model, row.cells["gpu"], gpus, f"{100 * share:+.1f} %"),
            *("fits" if fits(found.own.memory, found.gpu_gb) else "too large", found.fitting),
            f"best tp {p.tp} cp {p.cp} pp {p.pp} x {best.batch.virtual_stages} dp {p.dp}",
            f"micro {best.batch.micro_sequences} {best.training.recompute.value}",
            flush=True,
        )
    every = [share for shares in slower.values() for share in shares]
    for model, shares in [*slower.items(), ("all", every)]:
        near = sum(share <= CLOSE for share in shares)
        print(f"{model}: {near} of {len(shares)} within 5 %, median {100 * median(shares):+.1f} %")


if __name__ == "__main__":
    main()
