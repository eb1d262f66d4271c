"""The figures of one run, each drawn from its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter

from muster.structs import struct
from scheduler.console import theme
from scheduler.console.theme import light
from scheduler.core.wording import jobs_text
from simulator.report.text import duration

ReportValues = Mapping[str, Any]
NamedReports = Sequence[tuple[str, ReportValues]]  # of variants, "" for a run alone

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
    drawn = [waterfall(data), utilisation(data), waits([("", data)]), cuts([("", data)])]
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


def waits(reports: NamedReports) -> Chart:
    """Draw the waits, with a panel for each size class."""
    classes: dict[str, int] = {}
    for _, data in reports:
        for size in data["sizes"]:
            classes[size["class"]] = max(size["jobs"], classes.get(size["class"], 0))
    across = min(3, len(classes)) or 1  # no job may have ended
    down = -(-len(classes) // across) or 1
    made, axes = theme.new(0.6 + 2.1 * down, down, across, sharey=True)
    for each, (name, jobs) in zip(axes, classes.items(), strict=False):
        for i, (variant, data) in enumerate(reports):
            for size in data["sizes"]:
                if size["class"] == name:
                    wait_curve(each, size, variant, theme.line_style(i, len(reports)))
        wait_axis(each)
        alike = (f for _, data in reports for f in data["sizes"] if f["class"] == name)
        note_if_empty(each, has_waits(alike), "every job started within a second")
        theme.titled(each, f"{name} ({jobs_text(jobs)})")
    for each in axes[len(classes) :]:
        each.set_visible(False)
    if len(reports) > 1:
        theme.add_legend(made, axes[0])
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


def cuts(reports: NamedReports) -> Chart:
    classes = list(dict.fromkeys(f["class"] for _, s in reports for f in s["sizes"] if f["starts"]))
    made, panels = theme.new(3.0, 1, 3)
    tier = reports[0][1]["outer_tier"] or "domain"
    text: tuple[tuple[str, Callable[[ReportValues], float]], ...] = (
        (f"{tier}s of a gang, mean", lambda f: f["domains"]["mean"]),
        ("bytes a step cut by a gang, mean", lambda f: f["cut_bytes"] / max(f["starts"], 1)),
        ("bounded slowdown, p95", lambda f: f["slowdown"]["p95"]),
    )
    width = 0.8 / len(reports)
    for axes, (title, of) in zip(panels, text, strict=True):
        for i, (name, data) in enumerate(reports):
            by_class = {size["class"]: of(size) for size in data["sizes"]}
            at = [place + (i + 0.5) * width - 0.4 for place in range(len(classes))]
            values = [by_class.get(each, 0) for each in classes]
            colour = light(theme.LINES[i % len(theme.LINES)])
            axes.bar(at, values, width=width, label=name, color=colour)
        axes.set_xticks(
            range(len(classes)), [c.removesuffix(" GPUs") for c in classes], rotation=30
        )
        axes.set_xlabel("GPUs")
        theme.titled(axes, title)
    panels[1].yaxis.set_major_formatter(EngFormatter("B"))
    is_any = any(size["cut_bytes"] for _, data in reports for size in data["sizes"])
    note_if_empty(panels[1], is_any, f"nothing crosses a {tier}")
    if len(reports) > 1:
        theme.add_legend(made, panels[0])
    words = f"By size of gang: the {tier}s that it spans, and the bytes that it cuts there."
    return Chart("cuts", "Cut and slowdown", words, made)


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
