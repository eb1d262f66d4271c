"""The page of a study: the answer in a sentence, what each figure becomes, and what it rests on."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from scheduler.console import theme
from simulator.report.html import render
from simulator.twin.answer import Values, header, notes, sections, sentence

DRAWN = (
    ("effective_gpu_h", "effective GPU-hours", "figures", "differences"),
    ("wait_mean_s", "mean wait", "figures", "differences"),
    ("per_effective_gpu_h", "cost of a GPU-hour", "money", "money_differences"),
)


def write_twin(path: Path, answer: Values) -> None:
    """Write the page of a twin as one file that needs no others. Raises: OSError."""
    names = [each["name"] for each in answer["scenarios"]]
    shown = [(section.title, [*section.head, *names], section.rows) for section in sections(answer)]
    text = render(
        "twin.html",
        title=f"Twin of {answer['fabric']['name']}: {names[-1]}",
        subtitle=header(answer),
        sentence=sentence(answer),
        tables=shown,
        notes=notes(answer),
        words="What each scenario makes of the cluster as it is, with 95 % intervals over seeds.",
        picture=_picture(answer),
    )
    path.write_text(text, encoding="utf-8")


def _picture(answer: Values) -> Markup | None:
    """Differences in percent of the cluster as it is, with their intervals; None: nothing is
    different."""
    scenarios = answer["scenarios"][1:]
    drawn = [row for row in DRAWN if row[2] in answer["scenarios"][0]]
    if not scenarios:
        return None
    made, axes = theme.new(1.1 + 0.42 * len(scenarios), 1, len(drawn), sharey=True)
    for each, (key, words, figures, differences) in zip(axes, drawn, strict=True):
        was = abs(answer["scenarios"][0][figures][key]["mean"])
        each.axvline(0, color=theme.light("quiet"), linewidth=0.8)
        for at, scenario in enumerate(scenarios):
            change, colour = scenario[differences][key], theme.light(theme.LINES[at % 8])
            if change["low"] is not None:
                ends = [_percent(change[end], was) for end in ("low", "high")]
                each.plot(ends, [at, at], color=colour, linewidth=2)
            each.plot([_percent(change["mean"], was)], [at], "o", color=colour, markersize=5)
        each.set_yticks(range(len(scenarios)), [scenario["name"] for scenario in scenarios])
        each.set_ylim(len(scenarios) - 0.5, -0.5)
        each.margins(x=0.15)
        each.set_xlim(min(-1, each.get_xlim()[0]), max(1, each.get_xlim()[1]))
        theme.titled(each, f"{words}, % of now")
    return _inlined(made, sentence(answer))


def _inlined(made: Figure, label: str) -> Markup:
    """The figure as part of a page."""
    with TemporaryDirectory() as folder:
        svg = theme.save(made, Path(folder), "twin", label)
    return Markup(theme.inline(svg, "twin", str(escape(label))))


def _percent(value: float, was: float) -> float:
    return 100 * value / was if was else 0.0
