"""The commands of the simulator: replay, compare, sweep, trace, twin.

In: a command line. Out: totals, tables and report folders; wrong input leaves as an
`InputError` that names file, line and field. `register` is the plug-in that `muster`
loads, see [project.entry-points."muster.commands"].

    replay    muster replay: one trace through the scheduler
    studies   muster compare and muster sweep: many of them
    traces    muster trace: generate
    twin      muster twin: what a change of a cluster is worth
    fork      where the cluster of a twin comes from
    terminal  warnings, progress bars, the table at the end
"""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of the simulator."""
    from simulator.cli import replay, studies, traces, twin

    replay.register(app)
    traces.register(app)
    studies.register(app)
    twin.register(app)
