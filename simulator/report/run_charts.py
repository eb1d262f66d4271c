"""The figures of one run, each drawn from its data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from muster.structs import struct
from scheduler.console import theme
from scheduler.console.theme import light
from scheduler.core.wording import jobs_text
from simulator.report.text import duration

ReportValues = Mapping[str, Any]

# Where host-time goes: key, words, colour. From what was wanted to what was lost; hosts have the
# colours of the console's map, and all that failures cost has one.
PARTS = (
    ("kept", "productive", "map-running"),
    ("not_over", "running at the end", "map-running"),
    ("unsuccessful", "jobs that then failed or were cancelled", "map-stopped"),
    ("repeated", "repeated work", "map-stopped"),
    ("unnoticed", "failed, not yet detected", "map-stopped"),
    ("restarting", "restarting", "map-stopped"),
    ("saving", "writing checkpoints", "purple"),
    ("slowed", "waiting for the network", "purple"),
    ("stopped", "stopped gangs", "map-stopped"),
    ("spare", "spares", "map-spare"),
    ("down", "out of service", "map-failed"),
    ("idle_wanted", "idle while jobs wait", "grey"),
    ("idle_unwanted", "idle, queue empty", "grey"),
)
PALE = ("line", "grey", "map-stopped")  # bars on which dark letters are read better
STATES = (
    ("running", "running", "map-running"),
    ("stopped", "stopped gangs", "map-stopped"),
    ("spare", "spares", "map-spare"),
    ("down", "out of service", "map-failed"),
)


@struct(frozen=True, slots=True)
class Chart:
    """A figure, its name in files and on the page, and a sentence on how to read it."""

    name: str
    title: str
    words: str
    figure: Figure


def charts(data: ReportValues) -> list[Chart]:
    """Return all figures for which this run has data."""
    drawn = [waterfall(data), utilisation(data), waits(data), cuts(data)]
    return [*drawn, failures(data)] if data["faults"]["causes"] else drawn


def utilisation(data: ReportValues) -> Chart:
    line = data["timeline"]
    at, unit = theme.time_axis(line["at_s"])
    made, (hosts, jobs, wanted) = theme.new(5.2, 3, sharex=True, height_ratios=(3, 1.4, 1.4))
    stack = [[n / data["hosts"] for n in line["series"][key]] for key, _, _ in STATES]
    names, colours = [words for _, words, _ in STATES], [light(name) for _, _, name in STATES]
    hosts.stackplot(at, stack, labels=names, colors=colours, step="post", linewidth=0)
    hosts.set_ylim(0, 1)
    hosts.yaxis.set_major_formatter(percent())
    hosts.set_ylabel("share of hosts")
    theme.legend(hosts)
    _area(jobs, at, line["series"]["queued_jobs"], "jobs waiting")
    _area(wanted, at, line["series"]["queued_hosts"], "hosts wanted")
    _time(wanted, at, unit)
    words = (
        "What hosts do, and what waits: means over"
        f" {duration(line['bin_s'])} each. What is empty above the colours is idle."
    )
    return Chart("utilisation", "Utilisation and queue", words, made)


def _time(axes: Axes, at: Sequence[float], unit: str) -> None:
    axes.set_xlim(0, at[-1] + (at[1] if len(at) > 1 else 1))
    axes.set_xlabel(f"{unit} since the first submit")


def _area(axes: Axes, at: Sequence[float], values: Sequence[float], name: str) -> None:
    axes.fill_between(at, values, step="post", color=light("sky"), linewidth=0)
    axes.set_ylim(0, max([*values, 1]) * 1.08)
    axes.set_ylabel(name)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def waits(data: ReportValues) -> Chart:
    made, (axes,) = theme.new(3.2)
    for i, size in enumerate(data["sizes"]):
        style = theme.line_style(i, len(data["sizes"]))
        wait_curve(axes, size, f"{size['class']} ({jobs_text(size['jobs'])})", style)
    wait_axis(axes)
    theme.legend(axes, ncols=3)
    note_if_empty(axes, has_waits(data["sizes"]), "every job started within a second")
    words = "Share of jobs of each size that have started after this wait."
    return Chart("waits", "Waits by size", words, made)


def wait_curve(axes: Axes, size: Mapping[str, Any], name: str, style: dict[str, Any]) -> None:
    """Draw one class's curve of waits; waits below a second are drawn at one second."""
    curve = size["wait_curve"]
    at = [1.0, *(max(wait_s, 1.0) for wait_s, _ in curve)]
    axes.step(at, [0.0, *(by for _, by in curve)], where="post", label=name, **style)


def has_waits(sizes: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether there is a curve to draw."""
    return any(wait_s > 1 for size in sizes for wait_s, _ in size["wait_curve"])


def note_if_empty(axes: Axes, is_any: bool, sentence: str) -> None:
    """Write into an empty panel why it is empty."""
    if not is_any:
        place: Any = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, sentence, fontsize=8, color=light("quiet"), **place)


def wait_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    longest = axes.get_xlim()[1]
    ticks = [(1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h")]
    ticks += [(36_000, "10 h"), (172_800, "2 d"), (864_000, "10 d"), (5_184_000, "60 d")]
    shown = [tick for tick in ticks if tick[0] <= max(longest, 10)]
    axes.set_xticks([at for at, _ in shown], [text for _, text in shown])
    axes.minorticks_off()
    axes.set_xlim(1, max(longest, 10))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(percent())
    axes.set_xlabel("wait")


def waterfall(data: ReportValues) -> Chart:
    """Draw host-time from all down to what was kept, without parts that are nothing."""
    total = sum(data["host_s"].values()) or 1.0
    lost = [part for part in reversed(PARTS[1:]) if data["host_s"][part[0]] > 0]
    made, (axes,) = theme.new(0.75 + 0.3 * (len(lost) + 2))
    theme.styled(axes, grid="x")
    axes.grid(visible=False, axis="y")
    rows = [("all hosts, all the time", 0.0, 1.0, "line")]
    left = 1.0
    for key, words, colour in lost:
        share = data["host_s"][key] / total
        left -= share
        rows.append((words, left, share, colour))
    rows.append((PARTS[0][1], 0.0, data["host_s"]["kept"] / total, PARTS[0][2]))
    for at, (_, start, share, colour) in enumerate(rows):
        axes.barh(at, share, left=start, color=light(colour), height=0.72)
        text = f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"
        after = start + share + 0.01
        side = ("left", after) if after < 0.9 else ("right", start - 0.01)
        is_inside = start + share > 0.9 and start < 0.1
        side = ("right", 0.985) if is_inside else side
        ink = light("card" if is_inside and colour not in PALE else "ink")
        axes.text(side[1], at, text, ha=side[0], va="center", fontsize=8, color=ink)
    axes.set_yticks(range(len(rows)), [words for words, *_ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(percent())
    words = (
        "Host time of the fabric by use; the bars add up exactly. Orange: what failures cost;"
        " purple: what training waits for by itself."
    )
    return Chart("waterfall", "Goodput waterfall", words, made)


def cuts(data: ReportValues) -> Chart:
    sizes = [size for size in data["sizes"] if size["starts"]]
    names = [size["class"] for size in sizes]
    tier = data["outer_tier"] or "domain"
    made, (spanned, cut, slow) = theme.new(2.9, 1, 3)
    places = range(len(sizes))
    spanned.bar(places, [size["domains"]["mean"] for size in sizes], color=light("blue"))
    spanned.plot(
        places, [size["domains"]["most"] for size in sizes], "_", color=light("ink"), markersize=10
    )
    theme.titled(spanned, f"{tier}s of a gang: mean, and most")
    ratios = [size["cut_bytes"] / max(size["bound_bytes"], 1) for size in sizes]
    cut.bar(
        places,
        [r if f["cut_bytes"] else 0 for r, f in zip(ratios, sizes, strict=True)],
        color=light("blue"),
    )
    cut.axhline(1, color=light("ink"), linewidth=1)
    theme.titled(cut, "bytes cut over their lower bound")
    note_if_empty(cut, any(size["cut_bytes"] for size in sizes), f"nothing crosses a {tier}")
    for key, style in (("p50", "blue"), ("p95", "orange")):
        values = [size["slowdown"][key] for size in sizes]
        slow.plot(places, values, "o", color=light(style), label=key, markersize=5)
    slowdown_axis(slow)
    theme.titled(slow, "bounded slowdown")
    theme.legend(slow, loc="upper left", bbox_to_anchor=(0, 1), ncols=2)
    for axes in (spanned, cut, slow):
        axes.set_xticks(places, [name.removesuffix(" GPUs") for name in names], rotation=30)
    for axes in (spanned, cut):
        axes.set_xlabel("GPUs")
    words = (
        f"By size of gang: the {tier}s that it spans, the bytes that it cuts there over their lower"
        " bound (1 is optimal), and the bounded slowdown of jobs."
    )
    return Chart("cuts", "Cut and slowdown", words, made)


def slowdown_axis(axes: Axes) -> None:
    """Make a logarithmic axis with plain numbers: powers of ten where it spans several, else round
    numbers."""
    if axes.dataLim.ymax <= 0:  # no job has ended
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator() if high >= 10 * low else MaxNLocator(5))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def failures(data: ReportValues) -> Chart:
    causes = data["faults"]["causes"][:14]
    answers = data["faults"]["answers"]
    most = max(len(causes), len(answers), 3)
    made, (count, down, gangs) = theme.new(0.9 + 0.27 * most, 1, 3, width_ratios=(3, 2, 2))
    _bars(count, [(cause["cause"], cause["failures"]) for cause in causes])
    theme.titled(count, "failures of hosts")
    _bars(down, [(cause["cause"], cause["down_host_s"] / 3600) for cause in causes])
    down.set_yticks([])
    theme.titled(down, "host-hours out of service")
    _bars(gangs, [(answer["answer"], answer["gangs"]) for answer in answers])
    theme.titled(gangs, "gangs that lost a host")
    stopped = sum(cause["stopped_gangs"] for cause in data["faults"]["causes"])
    words = (
        f"{stopped:,} failures stopped a gang; {data['faults']['spares_used']:,} spares were"
        " swapped in."
    )
    return Chart("failures", "Failures by cause", words, made)


def _bars(axes: Axes, rows: Sequence[tuple[str, float]]) -> None:
    theme.styled(axes, grid="")
    axes.grid(visible=False)
    axes.barh(range(len(rows)), [value for _, value in rows], color=light("blue"), height=0.7)
    for at, (_, value) in enumerate(rows):
        label_bar(axes, value, at, f"{value:,.0f}")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(max(len(rows), 4) - 0.5, -0.5)  # a few bars are no wider than many
    axes.margins(x=0.14)
    axes.set_xticks([])


def label_bar(axes: Axes, value: float, at: float, text: str) -> None:
    """Write a number to the right of its bar."""
    place: Any = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
    axes.annotate(text, (value, at), fontsize=8, color=light("ink"), **place)


def percent() -> FuncFormatter:
    """Write shares as percentages of three digits at most."""
    return FuncFormatter(lambda share, _: f"{100 * share:.3g} %")
