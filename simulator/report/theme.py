"""One look for pictures in files and on pages, in light and in dark.

A figure is drawn once, in the colours of the light theme. Inside a page each colour
becomes a CSS variable, so that the same picture follows the reader's theme.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# name: (light, dark). The first six are the console's (scheduler/console/static/style.css); hues
# after Okabe and Ito (2008), lighter on dark ground.
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#16202c", "#e7edf4"),
    "pale": ("#4c5a6b", "#a9b6c4"),
    "rule": ("#cfd6df", "#364352"),
    "ground": ("#f7f8fa", "#10161d"),
    "card": ("#ffffff", "#18212b"),
    "accent": ("#14549c", "#7fb4f0"),
    "blue": ("#0072b2", "#4ba3dd"),
    "orange": ("#e69f00", "#e8ae2e"),
    "green": ("#009e73", "#2fb98f"),
    "pink": ("#cc79a7", "#dd93bb"),
    "sky": ("#56b4e9", "#86caf0"),
    "red": ("#d55e00", "#f07f2e"),
    "purple": ("#6f4fa0", "#a98bdc"),
    "wine": ("#8c2d5a", "#c9719b"),
    "yellow": ("#e3d534", "#f0e442"),
    "teal": ("#2f8f83", "#5cbfb1"),
    "brown": ("#8a6a45", "#bd9a70"),
    "grey": ("#b1b8c0", "#5a636e"),
}
LINES = ("blue", "red", "green", "purple", "orange", "pink", "sky", "ink")
DASHES = ("-", "--", ":", "-.")
DPI = 130
INCHES = 9.2

_RC: Any = {
    "svg.hashsalt": "muster",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
}
_ID = re.compile(r'\bid="([^"]+)"')
_LINK = re.compile(r'(xlink:href="#|url\(#)')
_SIZE = re.compile(r' width="[^"]+pt" height="[^"]+pt"')
_TITLE = re.compile(r"\s*<title>.*?</title>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def light(name: str) -> str:
    """The colour of that name in the light theme."""
    return COLOURS[name][0]


def line_style(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th of several lines: alike to nobody's eye."""
    return {"color": light(LINES[i % len(LINES)]), "linestyle": DASHES[i // len(LINES) % 4]}


def styled(axes: Axes, *, grid: str = "y") -> Axes:
    """Thin lines, no box, pale numbers."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(light("rule"))
    axes.tick_params(colors=light("pale"), labelsize=8, length=3, color=light("rule"))
    axes.xaxis.label.set_color(light("pale"))
    axes.yaxis.label.set_color(light("pale"))
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=light("rule"), linewidth=0.6)  # type: ignore[arg-type]
    return axes


def titled(axes: Axes, text: str) -> None:
    """A small title at the left."""
    axes.set_title(text, fontsize=9, loc="left", color=light("ink"))


def legend(axes: Axes, **options: Any) -> None:
    """A legend without a frame, above the axes."""
    placed: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 6} | options
    axes.legend(frameon=False, fontsize=8, labelcolor=light("ink"), **placed)


def add_legend(made: Figure, axes: Axes) -> None:
    """Add one legend for all panels, as many names in a row as fit."""
    handles, names = axes.get_legend_handles_labels()
    letters = 7 + max(map(len, names), default=0)
    placed: Any = {"loc": "outside upper left", "ncols": max(1, int(INCHES * 15.5) // letters)}
    made.legend(handles, names, frameon=False, fontsize=8, labelcolor=light("ink"), **placed)


def new(
    height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of the page's width, and its axes row by row."""
    made = Figure(figsize=(INCHES, height), layout="constrained")
    grid = made.subplots(rows, columns, squeeze=False, **options)
    return made, [styled(axes) for axes in grid.flat]


def save(made: Figure, folder: Path, name: str, label: str) -> str:
    """NAME.png and NAME.svg; their bytes depend on figure and label alone. Returns: the SVG.

    `label`: the text for who does not see it, the title inside both files.
    """
    path = folder / f"{name}.svg"
    with matplotlib.rc_context(_RC):
        ground = light("card")
        made.savefig(
            folder / f"{name}.png",
            dpi=DPI,
            facecolor=ground,
            metadata={"Software": None, "Title": label},
        )
        made.set_layout_engine("none")  # its axes stay where the PNG has them
        made.savefig(path, facecolor=ground, metadata={"Date": None, "Title": label})
    return path.read_text(encoding="utf-8")


def inline(svg: str, name: str, label: str) -> str:
    """A saved SVG as an <svg> element for a page: themed, scalable, its ids its own. `label` is
    what a screen reader says."""
    body = _TITLE.sub("", _METADATA.sub("", svg), count=1)
    body = body[body.index("<svg") :].rstrip()
    body = _SIZE.sub(f' role="img" aria-label="{label}"', body, count=1)
    body = _LINK.sub(rf"\g<1>{name}-", _ID.sub(rf'id="{name}-\1"', body))
    for colour, (shade, _) in COLOURS.items():
        body = body.replace(shade, f"var(--{colour})")
    return body


def variables() -> str:
    """The colours as CSS: light, and dark for readers who prefer it."""

    def block(which: int) -> str:
        return " ".join(f"--{name}: {pair[which]};" for name, pair in COLOURS.items())

    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {block(1)} }} }}"
    return f":root {{ color-scheme: light dark; {block(0)} }}\n{dark}"


def time_scale(last_s: float) -> tuple[float, str]:
    """Seconds in a unit that suits so long a time, and its name."""
    units = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"))
    return next((unit for unit in units if last_s >= 3 * unit[0]), (1.0, "seconds"))


def time_axis(at_s: Sequence[float]) -> tuple[list[float], str]:
    """Times in a unit that suits them, and its name."""
    scale, name = time_scale(at_s[-1] if at_s else 0.0)
    return [at / scale for at in at_s], name
