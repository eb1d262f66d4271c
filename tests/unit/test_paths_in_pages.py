"""The pages name files that are there."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of the examples that a reader of the chapters of docs/extending.md adds.
ADDED = {"simulator/traces/formats/plain.py"}


def test_files_that_pages_name_exist() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    files = [f"/{name}" for name in listed.split()]
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
        named = re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|proto|js))`", text)
        missing = [
            name
            for name in named
            if name not in ADDED and not any(file.endswith(f"/{name}") for file in files)
        ]
        assert not missing, f"{page.name} names {', '.join(missing)}"
