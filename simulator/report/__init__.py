"""What a replay leaves for people and notebooks."""

from simulator.report.files import JOB_COLUMNS, Growing, Report
from simulator.report.text import duration, figures, headline, markdown

__all__ = [
    "JOB_COLUMNS",
    "Growing",
    "Report",
    "duration",
    "figures",
    "headline",
    "markdown",
]
