"""Whatever is in a file, the answer is a fabric or a sentence, and always the same one."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from placement.fabric.tree import Fabric
from scheduler.files.errors import InputError
from scheduler.files.fabrics import FORMATS, read_fabric
from tests.cases import case
from tests.unit.test_pages import EXAMPLES
from tests.unit.test_pages import FABRICS as BLOCKS


def broken(text: str, draw: random.Random) -> str:
    """`text` with a few of its lines or characters changed, moved or gone."""
    for _ in range(draw.randint(1, 4)):
        rows = text.split("\n")
        at, other = draw.randrange(len(rows)), draw.randrange(len(rows))
        match draw.randrange(5):
            case 0:
                del rows[at]
            case 1:
                rows.insert(at, rows[other])
            case 2:
                rows[at], rows[other] = rows[other], rows[at]
            case 3:
                cut = draw.randint(0, len(rows[at]))
                rows[at] = rows[at][:cut] + draw.choice('[]{}",=:#-\\\t 0x') + rows[at][cut:]
            case _:
                rows[at] = rows[at][: draw.randint(0, len(rows[at]))]
        text = "\n".join(rows) or "\n"
    return text


@pytest.mark.parametrize("form", EXAMPLES)
def test_a_broken_file_is_read_or_refused(tmp_path: Path, form: str) -> None:
    for seed in range(30):
        with case(seed=seed):
            draw = random.Random(seed)
            texts = [BLOCKS[form], BLOCKS[f"overlay{'-for-blocks' * form.endswith('block')}"]]
            which = draw.choice((0, 0, 1))
            texts[which] = broken(texts[which], draw)
            (tmp_path / "file").write_text(texts[0])
            (tmp_path / "overlay.yaml").write_text(texts[1])
            told = ""
            try:
                built = read_fabric(str(tmp_path / "file"), form, str(tmp_path / "overlay.yaml"))
            except InputError as error:
                told = str(error)
            assert str(tmp_path) in told or isinstance(built.fabric, Fabric)


@pytest.mark.slow
def test_hash_seeds_decide_nothing(tmp_path: Path) -> None:
    for form in FORMATS:
        (tmp_path / form).write_text(BLOCKS.get(form, BLOCKS["slurm-yaml"]))
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
