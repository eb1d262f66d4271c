"""The placement benchmark: see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import own, report
from tests.bench.instances import instance


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    began = time.perf_counter()
    rows = [
        own.solve(instance(i, options.seed, options.traces))[0] for i in range(options.instances)
    ]
    print(report.own_tables(rows, every_family=options.families))
    print("\nwhere the gap is worst:\n")
    print(report.worst_table(rows))
    for row in report.worst(rows):
        print(f"{row.seed}:{row.index}", instance(row.index, row.seed, options.traces).describe())
    memory = own.peak_memory_bytes()
    print(f"\npeak memory {memory / 2**20:.0f} MiB, {time.perf_counter() - began:.0f} s in all")
    if options.json:
        result: dict[str, Any] = {"own": [r.to_json() for r in rows], "peak_bytes": memory}
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench", description=__doc__)
    parser.add_argument("--instances", type=int, default=336)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", default="all", help="all, none, or names with commas")
    parser.add_argument("--traces", default="", help="folder of the real traces")
    parser.add_argument("--families", action="store_true", help="a row for every family")
    parser.add_argument("--json", default="", help="write every number to this file")
    return parser.parse_args(argv)
