"""One look for pictures and pages: the colours of static/theme.css, and charts in them.

A figure is drawn once, in the colours of the light theme. Inside a page each colour becomes a CSS
variable, so that the same picture follows the reader's theme.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STATIC: Final = Path(__file__).with_name("static")
_LIGHT, _DARK = re.findall(r"\{(.*?)\}", (STATIC / "theme.css").read_text("utf-8"), re.DOTALL)
_COLOUR = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")
# name: (light, dark)
COLOURS: Final[dict[str, tuple[str, str]]] = {
    name: (light, dict(_COLOUR.findall(_DARK))[name]) for name, light in _COLOUR.findall(_LIGHT)
}
LINES = ("blue", "orange", "purple", "green", "pink", "ink", "brown", "grey")
DASHES = ("-", "--", ":", "-.")
DPI = 130
INCHES = 9.2
SMALL, TITLE = 8, 9.5  # points

_RC: Any = {
    "svg.hashsalt": "muster",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": TITLE,
}
_ID = re.compile(r'\bid="([^"]+)"')
_LINK = re.compile(r'(xlink:href="#|url\(#)')
_SIZE = re.compile(r' width="[^"]+pt" height="[^"]+pt"')
_TITLE = re.compile(r"\s*<title>.*?</title>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def light(name: str) -> str:
    """Return the colour of that name in the light theme."""
    return COLOURS[name][0]


def line_style(i: int, of: int = 1) -> dict[str, Any]:
    """Return colour, dashes and width of the i-th of several lines, which differ in all three;
    where lines coincide, the earlier ones are seen beside the later ones."""
    width = 1.4 + 2.2 * (of - 1 - i) / max(of - 1, 1)
    dashes = DASHES[i // len(LINES) % 4]
    return {"color": light(LINES[i % len(LINES)]), "linestyle": dashes, "linewidth": width}


def styled(axes: Axes, *, grid: str = "y") -> Axes:
    """Style axes: thin lines, no box, pale numbers."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(light("line"))
    axes.tick_params(colors=light("quiet"), labelsize=SMALL, length=0, color=light("line"))
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=light("quiet"), fontsize=SMALL)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=light("line"), linewidth=0.6)  # type: ignore[arg-type]
    return axes


def titled(axes: Axes, text: str) -> None:
    """Add a small title at the left."""
    axes.set_title(text, fontsize=TITLE, loc="left", color=light("ink"))


def legend(axes: Axes, **options: Any) -> None:
    """Add a legend without a frame, above the axes."""
    placed: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 6} | options
    axes.legend(frameon=False, fontsize=SMALL, labelcolor=light("ink"), **placed)


def add_legend(made: Figure, axes: Axes) -> None:
    """Add one legend for all panels, as many names in a row as fit."""
    handles, names = axes.get_legend_handles_labels()
    letters = 7 + max(map(len, names), default=0)
    placed: Any = {"loc": "outside upper left", "ncols": max(1, int(INCHES * 15.5) // letters)}
    made.legend(handles, names, frameon=False, fontsize=SMALL, labelcolor=light("ink"), **placed)


def new(
    height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Make a figure of the page's width, and its axes row by row."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(INCHES, height), layout="constrained")
    grid = made.subplots(rows, columns, squeeze=False, **options)
    return made, [styled(axes) for axes in grid.flat]


@contextmanager
def drawing() -> Iterator[None]:
    """Return a context in which files depend on the figure alone, and letters are those of the
    theme."""
    import matplotlib

    with matplotlib.rc_context(_RC):
        yield


def save(made: Figure, folder: Path, name: str, label: str) -> str:
    """Write NAME.png and NAME.svg, whose bytes depend on figure and label alone. Returns: the SVG.

    `label`: the title inside both files, for readers who cannot see the picture.
    """
    path = folder / f"{name}.svg"
    with drawing():
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
    """Return a saved SVG as an <svg> element of a page: themed, scalable, with ids of its own.
    `label` is what a screen reader says."""
    body = _TITLE.sub("", _METADATA.sub("", svg), count=1)
    body = body[body.index("<svg") :].rstrip()
    body = _SIZE.sub(f' role="img" aria-label="{label}"', body, count=1)
    body = _LINK.sub(rf"\g<1>{name}-", _ID.sub(rf'id="{name}-\1"', body))
    for colour, (shade, _) in COLOURS.items():
        body = body.replace(shade, f"var(--{colour})")
    return body


def variables(dark: str = "@media (prefers-color-scheme: dark) {{ :root {{{block}}} }}") -> str:
    """Return the theme as CSS. `dark`: where its second half holds, by default for readers who
    prefer it."""
    return f":root {{{_LIGHT}}}\n{dark.format(block=_DARK)}"


def time_scale(last_s: float) -> tuple[float, str]:
    """Return the seconds in a unit that suits so long a time, and the unit's name."""
    units = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"))
    return next((unit for unit in units if last_s >= 3 * unit[0]), (1.0, "seconds"))


def time_axis(at_s: Sequence[float]) -> tuple[list[float], str]:
    """Return times in a unit that suits them, and the unit's name."""
    scale, name = time_scale(at_s[-1] if at_s else 0.0)
    return [at / scale for at in at_s], name
