"""Pages from the templates beside this file. A page needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from scheduler.console import theme
from simulator.report.run_charts import Chart
from simulator.report.text import duration

TEMPLATES = Path(__file__).parent / "templates"


def write_page(folder: Path, template: str, charts: Sequence[Chart], **values: Any) -> None:
    """Write index.html from the template, and each chart as PNG and SVG under figures/."""
    (folder / "figures").mkdir(exist_ok=True)
    pictures = {chart.name: _picture(chart, folder / "figures") for chart in charts}
    text = render(template, charts=charts, pictures=pictures, **values)
    (folder / "index.html").write_text(text, encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """Render a template. Texts are escaped, and a missing name is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"count": "{:,}".format, "duration": duration}
    return environment.get_template(template).render(colours=Markup(theme.variables()), **values)


def _picture(chart: Chart, folder: Path) -> Markup:
    svg = theme.save(chart.figure, folder, chart.name, chart.title)
    return Markup(theme.inline(svg, chart.name, str(escape(chart.title))))
