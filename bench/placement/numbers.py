"""Everything one run measured, and the file that keeps it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.scoring import Score
from bench.placement.arnold_setting import Spread
from bench.placement.duel import Duel, duels, wrong_bounds
from bench.placement.own import Own


@dataclass(slots=True)
class PlacementRun:
    """The numbers of one run of the benchmark. `commit`: the newest that touched the engine."""

    seed: int
    traces: str = ""
    commit: str = ""
    rows: list[Own] = field(default_factory=list)
    small: list[Own] = field(default_factory=list)
    refusals: dict[str, list[float]] = field(default_factory=dict)
    scaling: dict[int, list[float]] = field(default_factory=dict)
    peak_bytes: int = 0
    spreads: list[Spread] = field(default_factory=list)
    scores: dict[int, list[Score]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def duels(self) -> list[Duel]:
        return duels(self.rows, self.scores)


PLAIN = ("seed", "traces", "commit", "refusals", "peak_bytes", "absent", "seconds")


def write(run: PlacementRun, path: Path) -> None:
    content: dict[str, Any] = {name: getattr(run, name) for name in PLAIN}
    content |= {
        "own": [row.to_json() for row in run.rows],
        "small": [row.to_json() for row in run.small],
        "scaling": run.scaling,
        "spreads": [asdict(s) for s in run.spreads],
        "peers": [asdict(s) for some in run.scores.values() for s in some],
        "wrong_bounds": [asdict(d.score) for d in wrong_bounds(run.duels)],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def read(path: Path) -> PlacementRun:
    content = json.loads(path.read_text())
    run = PlacementRun(**{name: content[name] for name in PLAIN if name in content})
    run.rows = [_own(row) for row in content["own"]]
    run.small = [_own(row) for row in content["small"]]
    run.scaling = {int(zones): seconds for zones, seconds in content["scaling"].items()}
    run.spreads = [Spread(**s) for s in content["spreads"]]
    for score in content["peers"]:
        run.scores.setdefault(score["index"], []).append(Score(**score))
    return run


def _own(row: dict[str, Any]) -> Own:
    kept = {name: value for name, value in row.items() if name in Own.__dataclass_fields__}
    return Own(**{**kept, "cuts": tuple(row["cuts"])})


def engine_commit() -> str:
    """Return the newest commit of the engine, marked when the tree differs from it."""
    log = ["git", "log", "-1", "--format=%h", "--", "placement"]
    found = subprocess.run(log, capture_output=True, text=True, check=False).stdout.strip()
    diff = ["git", "status", "--porcelain", "--", "placement"]
    changed = subprocess.run(diff, capture_output=True, text=True, check=False).stdout.strip()
    return (found or "unknown") + (" with changes" if changed else "")
