"""The figure itself: words, blocks of hosts, what colours mean, uplinks below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from muster.structs import struct
from placement.fabric import hostlist, hostset
from placement.fabric.hostset import HostSet
from placement.fabric.links import seconds_over
from placement.fabric.tree import Fabric, Ints, Tier
from placement.objective.cut import egress
from placement.workload.request import Objective, Placement, Request
from scheduler.cli.plot.geometry import PAD, Floats, FloorPlan, plan
from scheduler.cli.render.text import NEGLIGIBLE, bytes_text, counted, gap_text, seconds_text
from scheduler.console.theme import DPI, SMALL, TITLE, drawing, light, styled, titled
from scheduler.observe.proof import objective_gap

INCHES = 12.0
HEAD, LEGEND, BARS, MARGIN = 0.72, 0.5, 1.6, 0.25  # inches
LETTER = 0.09  # width of one below a bar
INK, PALE = light("ink"), light("quiet")
NUMBER: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": SMALL, "color": INK}
MOST_VECTOR_HOSTS = 20_000  # beyond, hosts are an image inside the SVG
MOST_RANGES = 3


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
    groups = grouping(picture.fabric, picture.request, picture.placement)
    inner = INCHES - 2 * MARGIN
    places = plan(picture.fabric, inner)
    map_height = places.height / places.hosts_per_inch
    uplinks = uplink_seconds(picture.fabric, picture.request, picture.placement)
    bars = BARS if uplinks.any() else 0.0
    height = HEAD + map_height + LEGEND + bars + MARGIN
    made = Figure(figsize=(INCHES, height))
    _head(made, picture, height)

    def area(bottom: float, tall: float) -> Axes:
        box = (MARGIN / INCHES, bottom / height, inner / INCHES, tall / height)
        return made.add_axes(box)

    _map(area(MARGIN + bars + LEGEND, map_height), picture, places, groups)
    _legend(made, area(MARGIN + bars, LEGEND), picture, groups)
    if bars:
        _bars(area(MARGIN + 0.15, bars - 0.5), picture.fabric.tiers[0], uplinks)
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


def _map(axes: Axes, picture: Picture, places: FloorPlan, groups: Grouping) -> None:
    """Hosts as squares, coloured; blocks framed, each with its name."""
    axes.set_xlim(0, places.width)
    axes.set_ylim(0, places.height)
    axes.set_aspect("equal")
    axes.set_axis_off()
    count = picture.fabric.host_count
    x, y = places.corner[:, 0], places.corner[:, 1]
    rim = 0.07
    corners = [(rim, rim), (1 - rim, rim), (1 - rim, 1 - rim), (rim, 1 - rim)]
    squares = np.stack([np.stack([x + a, y + b], axis=1) for a, b in corners], axis=1)
    hosts = PolyCollection(list(squares), facecolors=_host_colours(picture, groups), linewidths=0)
    hosts.set_snap(False)  # else some hosts of a row touch and some do not
    hosts.set_rasterized(count > MOST_VECTOR_HOSTS)
    axes.add_collection(hosts, autolim=False)
    for i, (left, low, width, height) in enumerate(places.blocks):
        corner, size = (left - PAD, low - PAD), (width + 2 * PAD, height + 2 * PAD)
        frame = Rectangle(corner, *size, fill=False, edgecolor=light("line"), linewidth=0.8)
        frame.set_clip_on(False)
        axes.add_patch(frame)
        if places.is_titled and picture.fabric.tiers:
            _title(axes, picture, places, groups, i)


def _host_colours(picture: Picture, groups: Grouping) -> list[str]:
    shades = palette(groups.count)
    by_host = [shades[group] if group >= 0 else FREE for group in groups.group_by_host.tolist()]
    state = states(picture.fabric, picture.placement, picture.free)
    for hosts, colour in ((state.busy, BUSY), (state.spare, SPARE)):
        for host in hosts.tolist():
            by_host[host] = colour
    return by_host


def _title(axes: Axes, picture: Picture, places: FloorPlan, groups: Grouping, block: int) -> None:
    left, low, width, height = places.blocks[block]
    tier = picture.fabric.tiers[0]
    inside = groups.group_by_host[tier.domain_by_host == block]
    size = 8.5 if width > 1.7 * places.hosts_per_inch else 7.0
    words = group_words(inside[inside >= 0], groups.kind)
    above: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "fontsize": size}
    left_end, right_end = (left - PAD, low + height + PAD), (left + width + PAD, low + height + PAD)
    room = int(width / places.hosts_per_inch * 72 / (0.62 * size)) - len(words) - 2  # letters
    axes.annotate(
        fitting(tier.domains[block], room), left_end, ha="left", weight="bold", color=INK, **above
    )
    axes.annotate(words, right_end, ha="right", color=PALE, **above)


def fitting(name: str, letters: int) -> str:
    """Return the end of a name that is too long, for names differ at the end."""
    return name if len(name) <= letters else "…" + name[-max(letters - 1, 3) :]


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


def _legend(made: Figure, axes: Axes, picture: Picture, groups: Grouping) -> None:
    axes.set_axis_off()
    shades = palette(groups.count)
    state = states(picture.fabric, picture.placement, picture.free)
    words = [
        (state.spare, "spare", SPARE),
        (state.busy, "busy", BUSY),
        (state.free, "free", FREE),
    ]
    others = [(f"{text} ({len(hosts):,})", colour) for hosts, text, colour in words if len(hosts)]
    is_named = groups.count <= MOST_NAMED
    named = [(str(i), shade) for i, shade in enumerate(shades)] if is_named else []
    if is_named:
        axes.text(0, 0.5, groups.kind, fontsize=SMALL, color=INK, va="center")
    else:
        _scale(made, axes, shades, groups)
    handles = [
        Patch(facecolor=colour, edgecolor=light("line"), linewidth=0.4, label=text)
        for text, colour in [*named, *others]
    ]
    axes.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(0.055 if is_named else 0.45, 0.5),
        ncols=max(1, len(handles)),
        frameon=False,
        fontsize=SMALL,
        handlelength=1.1,
        handleheight=1.1,
        handletextpad=0.35,
        columnspacing=0.95,
        borderaxespad=0,
    )


def _scale(made: Figure, axes: Axes, shades: Sequence[str], groups: Grouping) -> None:
    """A colour bar, where groups are too many for a colour each."""
    box = axes.inset_axes((0.055, 0.5, 0.36, 0.25))
    scale = ScalarMappable(Normalize(-0.5, groups.count - 0.5), ListedColormap(list(shades)))
    bar = made.colorbar(scale, cax=box, orientation="horizontal")
    axes.text(0, 0.5, groups.kind, fontsize=SMALL, color=INK, va="center")
    bar.ax.tick_params(labelsize=SMALL, length=2, color=PALE)
    bar.outline.set_visible(False)


def _bars(axes: Axes, tier: Tier, seconds: Floats) -> None:
    """One bar a domain; names and numbers as far as they have room."""
    at = np.arange(len(seconds))
    longest = max(map(len, tier.domains))
    step = -(-len(at) * (longest + 1) * LETTER // (INCHES - 2 * MARGIN))
    pitch_inches = (INCHES - 2 * MARGIN) / len(at)
    width = min(0.62, 0.9 / pitch_inches) if pitch_inches > 0.1 else 1.0
    axes.bar(at, seconds, width=width, color=light("blue"))
    axes.set_xlim(-0.6, len(at) - 0.4)
    axes.set_ylim(0, seconds.max() * 1.22)
    styled(axes, grid="")
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    shown = at[: len(at) - int(0.8 * (step - 1)) : int(step)]
    side = "center" if step == 1 else "left"  # else the first would leave the paper
    axes.set_xticks(shown, [tier.domains[i] for i in shown], ha=side)
    scale, unit = _unit(float(seconds.max()))
    title = f"uplink of each {tier.name}: {unit} busy in a step, at full rate"
    if step == 1:
        for i, value in enumerate(seconds.tolist()):
            text = f"{value / scale:.3g}" if value else ""
            axes.annotate(text, (i, value), (0, 2), textcoords="offset points", **NUMBER)
    else:
        title += f"; most {seconds.max() / scale:.3g}, {tier.domains[int(seconds.argmax())]}"
    titled(axes, title)


def _unit(longest_s: float) -> tuple[float, str]:
    """Seconds in a unit, and its name, so that most numbers have few digits."""
    units = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
    return next((unit for unit in units if longest_s >= unit[0]), (1e-9, "nanoseconds"))


def uplink_seconds(fabric: Fabric, request: Request, placement: Placement) -> Floats:
    """Return for each outermost domain the seconds of a step in which its uplink is busy."""
    if not fabric.tiers:
        return np.zeros(0)
    leaving = egress(fabric, request, placement.hosts)
    return seconds_over(np.array(leaving, dtype=np.float64), fabric.tiers[0].uplink_bytes_per_s)


HUES = tuple(map(light, ("blue", "orange", "green", "pink", "sky", "purple", "brown")))
SHADES = (0.0, 0.5, -0.42)  # towards white, towards black
MOST_NAMED = len(HUES) * len(SHADES)
DARKEST = 0.12
FREE, BUSY, SPARE = light("map-free"), light("map-somebody"), light("ink")
NOT_OF_JOB = -1
AXES = {"stage": "pp", "replica": "dp"}


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
