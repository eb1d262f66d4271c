"""The runs and pictures of docs/simulator.md: `python -m scripts.questions [TRACES]`.

Three questions of planners, each one muster command on traces that are written here, the
last on a real trace that TRACES, a folder, has to hold. Experiment files stay in
examples/questions; results go to build/questions, one picture of each to docs/img.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

FOLDER = Path("examples/questions")
BUILD = Path("build/questions")
IMAGES = Path("docs/img")
DAY_S = 86_400
SPARES = (0, 8, 16, 32, 64)
LLAMA3 = {
    "parallelism": {"tp": 8, "pp": 16, "dp": 128},
    "model": {
        "layers": 126,
        "hidden": 16_384,
        "ffn": 53_248,
        "heads": 128,
        "kv_heads": 8,
        "vocab": 128_256,
        "sequence": 8_192,
        "dtype": "bf16",
    },
    "batch": {"global_sequences": 2_048, "micro_sequences": 1},
}
REAL = "swf/NASA-iPSC-1993-3.1-cln.swf.gz"


def main(arguments: list[str]) -> int:
    for folder in (FOLDER, BUILD, IMAGES):
        folder.mkdir(parents=True, exist_ok=True)
    for spares in SPARES:
        _write(FOLDER / f"16k-{spares}.jsonl", big_and_small(spares))
    _write(FOLDER / "mix.jsonl", mix())
    muster("sweep", str(FOLDER / "spares.yaml"), "--report", str(BUILD / "spares"))
    picture("spares", "along-trace")
    muster("sweep", str(FOLDER / "uplinks.yaml"), "--report", str(BUILD / "uplinks"))
    picture("uplinks", "along-oversubscription")
    if not arguments or not arguments[0]:
        print("the real trace is not replayed: python -m scripts.questions FOLDER")
        return 0
    real(Path(arguments[0]) / REAL)
    return 0


def big_and_small(spares: int) -> Iterator[dict[str, Any]]:
    """Two weeks of a 16,384-GPU job, and 512-GPU jobs that want all the rest and more."""
    big = {"submit_s": 0, "run_s": 14 * DAY_S, "name": "llama3-405b", "priority": 100}
    yield {**big, **LLAMA3, "spares": spares}
    for i in range(326):
        yield {
            "submit_s": 1 + max(0, i - 15) * 3_900,
            "run_s": 43_200 + i * 7_919 % 43_200,
            "name": f"small-{i}",
            "parallelism": {"tp": 8, "dp": 64},
            "traffic": {"dp": 1},
            "spares": 0,
        }


def mix() -> Iterator[dict[str, Any]]:
    """Jobs of 64 to 8,192 GPUs, most of the time taken by large ones; shapes by --attach llm."""
    random = Random(405)
    at_s = 0.0
    for i in range(160):
        gpus = random.choice((64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192))
        run_s = int(random.lognormvariate(10.2, 0.7))
        yield {"submit_s": int(at_s), "run_s": run_s, "name": f"job-{i}", "gpus": gpus}
        at_s += random.expovariate(1 / 3_600)


def real(trace: Path) -> None:
    """Processors taken as GPUs of 16 hosts in 4 zones, jobs as what trains on so many."""
    if not trace.is_file():
        print(f"{trace} is not there")
        return
    places = [f"--placement={name}" for name in ("minimum-cut", "consecutive", "random")]
    muster(
        "compare", str(trace), "--trace-format", "swf", "--fabric", str(FOLDER / "small.yaml"),
        "--attach", "llm", "--times", "default", "--limit", "2000", *places,
        "--report", str(BUILD / "real"),
    )  # fmt: skip
    picture("real", "cuts")


def picture(question: str, figure: str) -> None:
    shutil.copy(BUILD / question / "figures" / f"{figure}.png", IMAGES / f"question-{question}.png")


def muster(*arguments: str) -> None:
    print("muster", *arguments, flush=True)
    subprocess.run([str(Path(sys.executable).parent / "muster"), *arguments], check=True)


def _write(path: Path, jobs: Iterator[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
