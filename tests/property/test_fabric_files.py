"""A fabric that is written as a file is the same fabric when it is read, and no hash seed shows in
what is written."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drills.fuzz import samples
from placement.fabric.reader import from_spec
from scheduler.files.fabrics import FORMATS, dump
from scheduler.files.yaml12 import parse
from tests.build import fabric
from tests.cases import case


def random_spec(seed: int) -> dict[str, Any]:
    """Hosts alone, equal domains, or a tree of up to three tiers with names of every sort, some of
    them used on several tiers, and NVLink racks."""
    draw = random.Random(seed)
    depth = draw.choice([0, 1, 2, 3, 3])
    is_regular = not depth or draw.random() < 0.2
    letters = [f"{a}{b}{i:02d}" for a in "xyz" for b in "_-." for i in range(60)]
    names = iter(draw.sample(letters, 500))
    nvlink = {"scale_up": {"gbps_per_gpu": draw.choice([3600, 7200])}}

    def some(**keys: Any) -> dict[str, Any]:
        return {key: value for key, value in keys.items() if draw.random() < 0.3}

    def domains(level: int, above: str) -> list[dict[str, Any]]:
        made = []
        for number in range(draw.choice([1, 2, 3])):
            name = above if above and not number and draw.random() < 0.2 else next(names)
            item = {"name": name, **some(oversubscription=draw.choice([2, 2.5, 7]))}
            if level == depth - 1:
                ends = [draw.choice(["", "a"]) for _ in range(draw.randint(1, 4))]
                item["hosts"] = draw.choice([len(ends), [f"{next(names)}{end}" for end in ends]])
                item |= some(**nvlink)
            else:
                item["domains"] = domains(level + 1, name)
            made.append(item)
        return made

    tiers = [{"name": f"t{i}", **some(oversubscription=4)} for i in range(depth)]
    if depth:
        tiers[-1] |= some(**nvlink)
    tiers.append({"name": "host"})
    if is_regular:
        tiers = [{**tier, "count": draw.randint(1, 12)} for tier in tiers]
    links = some(kind="infiniband", nic_gbps=100.5, scale_up_gbps=900)
    trees = {} if is_regular else {"domains": domains(0, "")}
    return {"name": "random", "gpus_per_host": 2, "tiers": tiers, **links, **trees}


def test_a_fabric_file_returns() -> None:
    for seed in range(60):
        with case(seed=seed):
            found = from_spec(random_spec(seed))
            assert from_spec(parse(dump(found)).value) == found


def test_labels_of_a_fabric_file_are_written_back() -> None:
    labels = {"z0": {"gpu": "h100"}, "z1-r[0-1]": {"gpu": "a100", "disk": "no"}}
    before = from_spec({**fabric().spec, "labels": labels})
    after = from_spec(parse(dump(before), "fabric.yaml").mapping())
    assert after.labels == before.labels
    assert after == before


@pytest.mark.slow
def test_hash_seeds_decide_nothing(tmp_path: Path) -> None:
    for form in FORMATS:
        (tmp_path / form).write_text(samples.topologies(form)[0])
    assert imported(tmp_path, "0") == imported(tmp_path, "1")


def imported(folder: Path, seed: str) -> str:
    """The fabric files and notes of every format, from another process."""
    code = (
        "from scheduler.files.fabrics import FORMATS, dump, read_fabric\n"
        "for form in FORMATS:\n"
        "    built = read_fabric(form, form)\n"
        "    print(dump(built.fabric), *built.notes, sep='\\n')"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.count("name: ") > len(FORMATS)
    return done.stdout
