"""The command of a program that replays jobs once, in a process of its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_run(simulate: Callable[..., dict[str, Any]], doc: str | None, *folders: str) -> int:
    """Write what `simulate` finds for the arguments: FOLDERS JOBS HOSTS POLICY OUT."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in (*folders, "jobs"):
        parser.add_argument(name, type=Path)
    parser.add_argument("hosts", type=int)
    parser.add_argument("policy")
    parser.add_argument("out", type=Path)
    arguments = vars(parser.parse_args())
    out = arguments.pop("out")
    out.write_text(json.dumps(simulate(**arguments)), encoding="utf-8")
    return 0
