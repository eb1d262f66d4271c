"""A page that needs nothing but itself: no script, no font, no address but its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from simulator.report.run_charts import Chart
from simulator.report.theme import inline, variables

# Nothing may be fetched, not even by mistake: pictures inside figures are data.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_LONG_CARD = ' class="long"'
LONG = 36  # letters of a card's value: more make it tall and narrow
STYLE = """
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--ground);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2.4rem 0 .2rem; }
p { margin: .2rem 0 .8rem; } .pale, figcaption, summary { color: var(--pale); }
a { color: var(--blue); } code { font-size: .92em; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.6rem, 1fr));
  grid-auto-flow: dense; gap: .6rem; margin: 1.2rem 0; padding: 0; }
.cards .long { grid-column: 1 / -1; }
.cards div { border: 1px solid var(--rule); border-radius: .5rem; padding: .5rem .7rem; }
.cards dt { color: var(--pale); font-size: .8rem; } .cards dd { margin: 0; font-size: 1.15rem; }
figure { margin: .4rem 0; } figure svg { width: 100%; height: auto; display: block; }
svg text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif !important; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--pale); font-weight: 500; }
td { vertical-align: top; } small { display: block; color: var(--pale); font-size: .86em; }
td.better { color: var(--green); } td.worse { color: var(--red); }
summary { cursor: pointer; font-size: .86rem; }
"""


def page(title: str, subtitle: str, body: Iterable[str]) -> str:
    """A whole document."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{variables()}{STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="pale">{escape(subtitle)}</p>',
            *body,
            "</body>",
            "</html>",
            "",
        ]
    )


def cards(rows: Iterable[tuple[str, str]]) -> str:
    """Figures that are looked for first; one that is a list has a row of its own."""
    each = (
        f"<div{_LONG_CARD if len(value) > LONG else ''}>"
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in rows
    )
    return f'<dl class="cards">{"".join(each)}</dl>'


def figure(chart: Chart, more: str = "") -> str:
    """A chart with its title, its sentence, and perhaps its numbers below."""
    drawn = inline(chart.figure, chart.name, escape(chart.title, quote=True))
    return (
        f'<section id="{chart.name}"><h2>{escape(chart.title)}</h2>'
        f"<figure><figcaption>{escape(chart.words)}</figcaption>{drawn}</figure>{more}</section>"
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, whether it is better or worse than another, links (text, address), and a note
    in small print below."""

    text: str
    kind: str = ""
    links: tuple[tuple[str, str], ...] = ()
    note: str = ""

    def __str__(self) -> str:
        kind = f' class="{self.kind}"' if self.kind else ""
        links = (f'<a href="{escape(to)}">{escape(text)}</a>' for text, to in self.links)
        note = f"<small>{escape(self.note)}</small>" if self.note else ""
        return f"<td{kind}>{escape(self.text)}{', '.join(links)}{note}</td>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Texts by column; the first names the row."""
    return rich_table(head, ([Cell(text) for text in row] for row in rows))


def rich_table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """The same with cells that say more than a text."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(map(str, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def details(summary: str, inner: str) -> str:
    """Something for those who want it."""
    return f"<details><summary>{escape(summary)}</summary>{inner}</details>"


def note(sentence: str) -> str:
    """What a reader of the numbers above has to know."""
    return f"<p>Note: {escape(sentence)}.</p>"


def listed(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"
