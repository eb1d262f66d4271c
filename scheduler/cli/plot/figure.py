"""The figure itself: words, blocks of hosts, what colours mean, uplinks below."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from muster.structs import struct
from placement.fabric import hostlist, hostset
from placement.fabric.hostset import HostSet
from placement.fabric.links import seconds_over
from placement.fabric.tree import Fabric, Ints
from placement.objective.cut import egress
from placement.workload.request import Objective, Placement, Request
from scheduler.cli.render.text import NEGLIGIBLE, bytes_text, counted, gap_text, seconds_text
from scheduler.console.theme import DPI, SMALL, TITLE, drawing, light, styled, titled
from scheduler.observe.proof import objective_gap

Floats = npt.NDArray[np.float64]

INCHES, MARGIN = 12.0, 0.25
HEAD, LEGEND, BARS = 0.72, 0.5, 1.6  # inches
INK, PALE = light("ink"), light("quiet")
FREE, BUSY, SPARE = light("map-free"), light("map-somebody"), light("ink")
HUES = tuple(map(light, ("blue", "orange", "green", "pink", "sky", "purple", "brown")))
SHADES = (0.0, 0.5, -0.42)  # towards white, towards black
MOST_NAMED = len(HUES) * len(SHADES)
DARKEST = 0.12
MOST_VECTOR_HOSTS = 20_000  # beyond, hosts are an image inside the SVG
MOST_RANGES = 3
MOST_TITLED = 60  # domains; beyond, their names would overlap
LETTERS = 13  # of a title in an inch
AXES = {"stage": "pp", "replica": "dp"}
NOT_OF_JOB = -1


@struct(frozen=True, slots=True)
class Picture:
    """Contents of a picture."""

    fabric: Fabric
    request: Request
    placement: Placement
    free: HostSet
    name: str


def save(made: Figure, path: Path) -> None:
    """Write a figure. Its bytes depend on the figure alone, without a date or random ids. Its head
    becomes the title in the file, for readers who cannot see it."""
    form = path.suffix.lower()[1:]
    title = ": ".join(text.get_text() for text in made.texts[:2])
    metadata = {"Date" if form == "svg" else "Software": None, "Title": title}
    with drawing():
        made.savefig(path, format=form, dpi=DPI, facecolor=light("card"), metadata=metadata)


def figure(picture: Picture) -> Figure:
    """Draw the whole figure, as high as its blocks need."""
    inner = INCHES - 2 * MARGIN
    groups = grouping(picture.fabric, picture.request, picture.placement)
    places = plan(picture.fabric, inner)
    tall = inner * places.size[1] / places.size[0]
    uplinks = uplink_seconds(picture.fabric, picture.request, picture.placement)
    bars = BARS if uplinks.any() else 0.0
    height = HEAD + tall + LEGEND + bars + MARGIN
    made = Figure(figsize=(INCHES, height))

    def area(bottom: float, tall: float) -> Axes:
        return made.add_axes((MARGIN / INCHES, bottom / height, inner / INCHES, tall / height))

    _head(made, picture, height)
    _map(area(MARGIN + bars + LEGEND, tall), picture, places, groups)
    _legend(area(MARGIN + bars, LEGEND), picture, groups)
    if bars:
        _bars(area(MARGIN + 0.15, bars - 0.5), picture.fabric, uplinks)
    return made


def _head(made: Figure, picture: Picture, height: float) -> None:
    fabric, placement = picture.fabric, picture.placement
    ranks = picture.request.parallelism.world_size
    title = f"{picture.name} on {fabric.name}" if picture.name else fabric.name
    parts = [
        counted(len(placement.hosts), "host"),
        counted(ranks, "rank"),
        counted(len(placement.spares), "spare"),
    ]
    measured = {Objective.CUT: "", Objective.TIME: ""}
    if placement.cuts:
        tier = fabric.tiers[0].name
        measured[Objective.CUT] = f"{bytes_text(placement.cut)} a step between {tier}s"
    if placement.step is not None:
        measured[Objective.TIME] = f"{seconds_text(placement.step.seconds)} a step"
    objective = picture.request.objective
    gap = objective_gap(objective, placement.cuts, placement.lower_bound, placement.step)
    if gap is not None and measured[objective]:
        negligible = NEGLIGIBLE if objective is Objective.TIME else 0.0
        parts.append(f"{measured.pop(objective)}, {gap_text(gap, negligible)}")
    if placement.is_optimal and measured.get(Objective.CUT):
        measured[Objective.CUT] += ", proved least"
    parts += filter(None, measured.values())
    left = MARGIN / INCHES
    made.text(left, 1 - 0.27 / height, title, fontsize=13, weight="bold", color=INK, va="center")
    made.text(left, 1 - 0.50 / height, " · ".join(parts), fontsize=TITLE, color=PALE, va="center")


@struct(frozen=True, slots=True)
class FloorPlan:
    """Where hosts and outermost domains lie on paper, in widths of a host, y downwards. `corner`:
    shape (hosts, 2), of the square of each host; `blocks`: of the domains, `block` wide and high.
    `scale`: widths of a host in an inch."""

    corner: Floats
    blocks: Floats
    block: Floats
    size: Floats
    scale: float


def plan(fabric: Fabric, inches: float) -> FloorPlan:
    """Lay out the hosts of a fabric on paper `inches` wide: innermost domains are cells of hosts,
    outermost ones blocks of cells, each in the order of the fabric. Cost: O(hosts)."""
    block_of = fabric.tiers[0].domain_by_host if fabric.tiers else np.zeros(fabric.host_count, int)
    has_cells = len(fabric.tiers) > 1
    cell_of = fabric.tiers[-1].domain_by_host if has_cells else np.arange(fabric.host_count)
    firsts = np.unique(cell_of, return_index=True)[1]
    within = _arranged(_running(cell_of), np.ones(2), 1.6)
    cell = _arranged(_running(block_of[firsts])[cell_of], within[1] + 0.35 * has_cells, 1.35)
    inside, block = within[0] + cell[0], cell[1] + 1.0 - 0.35 * has_cells
    count = int(block_of.max()) + 1
    scale = max(3.6, _across(count, block, 2.1) * block[0] / inches)
    gap = scale * (np.array([0.16, 0.4]) if count <= MOST_TITLED else np.array([0.04, 0.04]))
    corner, size = _arranged(np.arange(count), block + gap, 2.1)
    corner[:, 1] += gap[1]
    width = max(float(size[0] - gap[0]), scale * inches)
    return FloorPlan(
        corner[block_of] + inside + 0.5, corner, block, np.array([width, size[1]]), width / inches
    )


def _across(count: int, box: Floats, aspect: float) -> int:
    """Return how many of these boxes stand in a row, so that all together are about `aspect` times
    as wide as high and few places stay empty."""
    ideal = min(float(count), max(1.0, sqrt(count * aspect * box[1] / box[0])))
    near = range(ceil(0.7 * ideal), min(count, int(1.4 * ideal)) + 1)
    return min(near, key=lambda across: (-count % across, abs(across - ideal)))


def _arranged(number: Ints, box: Floats, aspect: float) -> tuple[Floats, Floats]:
    """Return the corner of each numbered box in rows of them, and the size of all together."""
    count = int(number.max()) + 1
    across = _across(count, box, aspect)
    corner = np.stack([number % across, number // across], axis=1) * box
    return corner, box * (across, ceil(count / across))


def _running(group: Ints) -> Ints:
    """How many of the same group stand before each."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    running = np.empty(len(group), dtype=np.int64)
    sizes = np.diff(np.append(starts, len(group)))
    running[order] = np.arange(len(group)) - np.repeat(starts, sizes)
    return running


def _map(axes: Axes, picture: Picture, places: FloorPlan, groups: Grouping) -> None:
    """Hosts as squares, coloured; blocks framed, each with its name."""
    axes.set_xlim(0, places.size[0])
    axes.set_ylim(places.size[1], 0)
    axes.set_axis_off()
    rim = 0.07
    square = np.array([(rim, rim), (1 - rim, rim), (1 - rim, 1 - rim), (rim, 1 - rim)])
    squares = places.corner[:, None] + square
    hosts = PolyCollection(list(squares), facecolors=_host_colours(picture, groups), linewidths=0)
    hosts.set_snap(False)  # else some hosts of a row touch and some do not
    hosts.set_rasterized(picture.fabric.host_count > MOST_VECTOR_HOSTS)
    axes.add_collection(hosts, autolim=False)
    width, height = places.block
    for i, (left, top) in enumerate(places.blocks.tolist()):
        frame = Rectangle((left, top), width, height, fill=False, ec=light("line"), lw=0.8)
        frame.set_clip_on(False)
        axes.add_patch(frame)
        if picture.fabric.tiers and len(places.blocks) <= MOST_TITLED:
            tier = picture.fabric.tiers[0]
            inside = groups.group_by_host[tier.domain_by_host == i]
            words = group_words(inside[inside >= 0], groups.kind)
            text = block_title(tier.domains[i], words, int(LETTERS * width / places.scale))
            above = top - 0.06 * places.scale
            axes.text(left, above, text, fontsize=SMALL, color=INK)


def block_title(name: str, words: str, letters: int) -> str:
    """Return the name of a block and what lies there, without that where it has no room; of a long
    name the end, for names differ there."""
    text = f"{name}   {words}".strip()
    if len(text) <= letters:
        return text
    return name if len(name) <= letters else "…" + name[-max(letters - 1, 3) :]


def _host_colours(picture: Picture, groups: Grouping) -> list[str]:
    shades = palette(groups.count)
    by_host = [shades[group] if group >= 0 else FREE for group in groups.group_by_host.tolist()]
    state = states(picture.fabric, picture.placement, picture.free)
    for hosts, colour in ((state.busy, BUSY), (state.spare, SPARE)):
        for host in hosts.tolist():
            by_host[host] = colour
    return by_host


def group_words(groups: Ints, kind: str) -> str:
    """Name groups of a kind, such as stage, in words: `stages 0-2, 5`; only how many where that
    would be long, "" for none."""
    numbers = np.unique(groups).tolist()
    if not numbers:
        return ""
    ranges = hostlist.fold([str(n) for n in numbers]).strip("[]").split(",")
    if len(ranges) > MOST_RANGES:
        return f"{len(numbers)} {kind}s"
    return f"{kind}{'s' if len(numbers) > 1 else ''} {', '.join(ranges)}"


def _legend(axes: Axes, picture: Picture, groups: Grouping) -> None:
    """Colours of the groups, of every other one and so on where they are many, and of the states of
    hosts."""
    axes.set_axis_off()
    shades = palette(groups.count)
    state = states(picture.fabric, picture.placement, picture.free)
    shown = range(0, groups.count, -(-groups.count // MOST_NAMED))
    named = [(f"{groups.kind} 0", shades[0]), *((str(i), shades[i]) for i in shown[1:])]
    for hosts, text, colour in (
        (state.spare, "spare", SPARE),
        (state.busy, "busy", BUSY),
        (state.free, "free", FREE),
    ):
        if len(hosts):
            named.append((f"{text} ({len(hosts):,})", colour))
    handles = [
        Patch(facecolor=colour, edgecolor=light("line"), linewidth=0.4, label=text)
        for text, colour in named
    ]
    size: dict[str, Any] = {"handlelength": 1.1, "handletextpad": 0.35, "columnspacing": 0.95}
    size |= {"fontsize": SMALL, "borderaxespad": 0, "borderpad": 0}
    axes.legend(handles=handles, loc="center left", ncols=len(handles), frameon=False, **size)


def _bars(axes: Axes, fabric: Fabric, seconds: Floats) -> None:
    """One bar a domain, with names and numbers where they have room."""
    tier = fabric.tiers[0]
    bars = axes.bar(np.arange(len(seconds)), seconds, width=0.62, color=light("blue"))
    axes.set_xlim(-0.6, len(seconds) - 0.4)
    axes.set_ylim(0, seconds.max() * 1.22)
    styled(axes, grid="")
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    title, room = f"uplink of each {tier.name}: busy in a step, at full rate", LETTERS * INCHES
    are_named = len(seconds) * (1 + max(map(len, tier.domains))) <= room
    axes.set_xticks(*(([*range(len(seconds))], tier.domains) if are_named else ([],)))
    if len(seconds) * len("16.6 ms ") <= room:
        numbers = [seconds_text(each) if each else "" for each in seconds.tolist()]
        axes.bar_label(bars, numbers, padding=2, fontsize=SMALL, color=INK)
    else:
        most = int(seconds.argmax())
        title += f"; most {seconds_text(float(seconds[most]))}, {tier.domains[most]}"
    titled(axes, title)


def uplink_seconds(fabric: Fabric, request: Request, placement: Placement) -> Floats:
    """Return for each outermost domain the seconds of a step in which its uplink is busy."""
    if not fabric.tiers:
        return np.zeros(0)
    leaving = egress(fabric, request, placement.hosts)
    return seconds_over(np.array(leaving, dtype=np.float64), fabric.tiers[0].uplink_bytes_per_s)


@struct(frozen=True, slots=True)
class Grouping:
    """Groups of hosts that a picture colours. `kind`: a key of AXES. `group_by_host`: the stage or
    replica of a host's first rank, -1 outside the job."""

    kind: str
    count: int
    group_by_host: Ints


@struct(frozen=True, slots=True)
class States:
    """Hosts that carry no rank of the job, as indices: spare, busy and free ones."""

    spare: Ints
    busy: Ints
    free: Ints


def grouping(fabric: Fabric, request: Request, placement: Placement) -> Grouping:
    """Group the hosts by the axis whose groups touch fewer of the outermost domains."""
    ways = [grouped(fabric, request, placement, kind) for kind in AXES]
    return min(ways, key=lambda way: (way.count == 1, _spread(fabric, way)))


def grouped(fabric: Fabric, request: Request, placement: Placement, kind: str) -> Grouping:
    """Group the hosts by stage or by replica."""
    axis, parallelism = AXES[kind], request.parallelism
    first_rank = np.arange(len(placement.hosts)) * fabric.gpus_per_host
    group = first_rank // parallelism.stride(axis) % parallelism.size(axis)
    of_host = np.full(fabric.host_count, NOT_OF_JOB, dtype=np.int64)
    of_host[list(placement.hosts)] = group
    return Grouping(kind, parallelism.size(axis), of_host)


def _spread(fabric: Fabric, way: Grouping) -> float:
    """Outermost domains that a group touches, on average."""
    if not fabric.tiers:
        return 1.0
    inside = way.group_by_host >= 0
    pairs = {
        *zip(
            way.group_by_host[inside].tolist(),
            fabric.tiers[0].domain_by_host[inside].tolist(),
            strict=True,
        )
    }
    return len(pairs) / len({group for group, _ in pairs})


def states(fabric: Fabric, placement: Placement, free: HostSet) -> States:
    """Sort hosts into spare, busy and free."""
    is_free = hostset.to_mask(free, fabric.host_count).copy()
    is_free[[*placement.hosts, *placement.spares]] = False
    is_busy = ~hostset.to_mask(free, fabric.host_count)
    is_busy[[*placement.hosts, *placement.spares]] = False
    spare = np.array(placement.spares, dtype=np.int64)
    return States(spare, np.flatnonzero(is_busy), np.flatnonzero(is_free))


def palette(count: int) -> Sequence[str]:
    """Return `count` colours as #RRGGBB: seven hues of the theme in three shades, neighbours in
    different hues. Beyond 21 groups a scale (viridis without its black end), for then it is order
    that can be seen, not numbers."""
    if count > MOST_NAMED:
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        scale = colormaps["viridis"]
        return [to_hex(scale(DARKEST + (1 - DARKEST) * i / (count - 1))) for i in range(count)]
    return [_shade(HUES[i % len(HUES)], SHADES[i // len(HUES)]) for i in range(count)]


def _shade(colour: str, amount: float) -> str:
    """Mixed with white (amount above 0) or black (below)."""
    target = 255 if amount > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(part + (target - part) * abs(amount)) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in mixed)
