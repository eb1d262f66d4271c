"""A command's output as a picture that scrolls: `python -m scripts.cast FILE.svg -- make demo`.

It begins with the first page; then lines come at the pace at which the command wrote them, but for
long pauses. The picture is one SVG file without scripts; who wants no motion sees its last page.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from html import escape
from pathlib import Path

ROWS, COLUMNS = 28, 112
_WIDTH, _HEIGHT = 8, 18  # of a character, pixels
_MOST_PAUSE_S, _LEAST_PAUSE_S, _FIRST_S, _END_S = 1.0, 0.06, 4.0, 6.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("svg", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    command = [word for word in given.command if word != "--"]
    lines, code = record(command)
    if code == 0:
        given.svg.write_text(drawn(lines))
    return code


def record(command: list[str]) -> tuple[list[tuple[float, str]], int]:
    """Run a command; return its lines with the seconds before each, and its exit code."""
    lines, before_s = list[tuple[float, str]](), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now_s = time.monotonic()
            pause_s = min(max(now_s - before_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)
            before_s = now_s
            text = line.rstrip("\n").expandtabs()
            print(text)
            lines.append((pause_s, text))
    return lines, process.returncode


def drawn(lines: list[tuple[float, str]]) -> str:
    """Draw lines, each with the seconds before it, as an animated SVG."""
    rows = [
        (pause_s if first else 0.0, part)
        for pause_s, text in lines
        for first, part in _folded(text)
    ]
    total_s = _FIRST_S + sum(pause_s for pause_s, _ in rows[ROWS:]) + _END_S
    at_s, stops = _FIRST_S, list[str]()
    for number, (pause_s, _) in list(enumerate(rows))[ROWS:]:
        at_s += pause_s
        lift = (ROWS - 1 - number) * _HEIGHT
        stops.append(f"{100 * at_s / total_s:.3f}%{{transform:translateY({lift}px)}}")
    end = f"translateY({(ROWS - len(rows)) * _HEIGHT}px)"
    text = "\n".join(
        f'<text y="{(number + 1) * _HEIGHT - 5}"{_kind(rows, number)}>{escape(part)}</text>'
        for number, (_, part) in enumerate(rows)
        if part
    )
    width, height = COLUMNS * _WIDTH + 24, ROWS * _HEIGHT + 24
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
  aria-label="The demo in a terminal, scrolling">
<style>
text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre}}
.h{{fill:#fff;font-weight:700}} .c{{fill:#7ee787}}
#s{{transform:{end};animation:scroll {total_s:.1f}s step-end infinite}}
@keyframes scroll{{0%{{transform:translateY(0)}}
{" ".join(stops)}
100%{{transform:{end}}}}}
@media (prefers-reduced-motion:reduce){{#s{{animation:none}}}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<svg x="12" y="12" width="{width - 24}" height="{height - 24}"><g id="s">
{text}
</g></svg>
</svg>
"""


def _folded(text: str) -> list[tuple[bool, str]]:
    """Break a line that is longer than the terminal; the flag marks its first part."""
    parts = [text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS)] or [""]
    return [(part is parts[0], part) for part in parts]


def _kind(rows: list[tuple[float, str]], number: int) -> str:
    text = rows[number][1]
    if text.startswith("  $ "):
        return ' class="c"'
    following = rows[number + 1][1] if number + 1 < len(rows) else ""
    return ' class="h"' if text and following == "-" * len(text) else ""


if __name__ == "__main__":
    sys.exit(main())
