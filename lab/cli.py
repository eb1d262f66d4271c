"""`muster lab`: a cluster of network namespaces on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lab.cluster import Lab
    from lab.faults import Direction, Fault

Folder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the lab; one lab a folder. (default: muster-lab in the temporary folder,"
        " with the user's number)",
        envvar="MUSTER_LAB",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(help="A host, or a domain, whose uplink is meant.")]
OneWay = Annotated[
    str, typer.Option(help="`up` (towards the top), `down`, or `both` directions of the link.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    lab = typer.Typer(
        name="lab",
        help="A cluster of network namespaces on this machine: packets, cuts and real ranks.",
        no_args_is_help=True,
    )
    lab.command("up")(up_command)
    lab.command("status")(status_command)
    passing = {"allow_extra_args": True, "ignore_unknown_options": True}
    lab.command("exec", context_settings=passing)(exec_command)
    lab.command("cut")(cut_command)
    lab.command("slow")(slow_command)
    lab.command("lose")(lose_command)
    lab.command("heal")(heal_command)
    lab.command("measure")(measure_command)
    lab.command("down")(down_command)
    app.add_typer(lab)


def _folder(given: Path | None) -> Path:
    return (given or Path(tempfile.gettempdir()) / f"muster-lab-{os.geteuid()}").absolute()


def up_command(
    fabric: Annotated[str, typer.Argument(help="A preset or a fabric file.", show_default=False)],
    scale: Annotated[
        str,
        typer.Option(
            help="Share of all rates, as 1/10000. (default: as fast as this machine carries)"
        ),
    ] = "",
    bare: Annotated[
        bool, typer.Option("--bare", help="The network alone, without server and agents.")
    ] = False,
    agents: Annotated[bool, typer.Option(help="An agent on each host.")] = True,
    servers: Annotated[
        int,
        typer.Option(min=1, max=3, help="Servers; more than one on PostgreSQL, with a standby."),
    ] = 1,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="A Slurm of the hosts, which starts the agents.")
    ] = False,
    cores: Annotated[
        float, typer.Option(min=0, help="Cores of each host, as 0.5; 0: all of this machine's.")
    ] = 0,
    memory_mb: Annotated[
        int, typer.Option(min=0, help="Memory of each host, in megabytes; 0: all there is.")
    ] = 0,
    folder: Folder = None,
) -> None:
    """Make the hosts, links and uplinks of a fabric, with a server and an agent on each host."""
    from lab.cluster import refuse, up
    from lab.database import check_postgres
    from lab.limits import limit_hosts
    from lab.plan import fitting_scale, plan_lab
    from lab.serving import serve
    from lab.slurm import missing_slurm, start_slurm
    from scheduler.files import inputs

    read = inputs.load_fabric(fabric)
    share = _share(scale) if scale else fitting_scale(read)
    plan = plan_lab(read, share, 0 if bare else servers)
    if servers > 1 and not bare:
        check_postgres()
    if slurm and (lacking := missing_slurm()):
        raise refuse(lacking, "slurm")
    with _progress("namespaces") as show:
        lab = up(_folder(folder), plan, show)
        path = _write_fabric(lab, read.spec)
        if cores or memory_mb:
            lab = limit_hosts(lab, cores, memory_mb)
        if slurm:
            lab = start_slurm(lab, read)
        if not bare:
            lab = serve(lab, path, agents)
    typer.echo(_described(lab))


def _write_fabric(lab: Lab, spec: object) -> Path:
    import yaml

    path = lab.folder / "fabric.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return path


def _share(text: str) -> float:
    """Raises: InputError unless it is a number or a fraction."""
    from lab.cluster import refuse

    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise refuse(f"must be a share such as 1/10000 or 0.001, not {text!r}", "scale") from None


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _described(lab: Lab) -> str:
    plan = lab.plan
    cards = [link for link in plan.links if link.lower == "nic" and link.node.startswith("h")]
    lines = [
        f"{len(plan.hosts)} hosts, {len(plan.inside)} domains, rates at 1/{1 / plan.scale:,.0f}:"
        f" a host sends {cards[0].bits_per_s / 1e6:,.3g} Mbit/s",
        f"folder {lab.folder}, kept by process {lab.keeper}",
    ]
    if lab.servers:
        lines.append(f"server {lab.servers}: muster lab exec client -- muster status")
    lines += [str(fault) for fault in lab.faults]
    return "\n".join(lines)


def status_command(folder: Folder = None) -> None:
    """Show what runs, and which links are cut, slow or lossy."""
    from lab.cluster import running

    typer.echo(_described(running(_folder(folder))))


def exec_command(
    context: typer.Context,
    host: Annotated[str, typer.Argument(help="A host, `client`, or a server.")],
    folder: Folder = None,
) -> None:
    """Run a command in the network of a host: muster lab exec HOST -- COMMAND."""
    from lab.cluster import refuse, running

    lab = running(_folder(folder))
    if not context.args:
        raise refuse("give a command: muster lab exec HOST -- COMMAND", "command")
    argv = lab.command(host, context.args)
    sys.stdout.flush()
    os.execvpe(argv[0], argv, lab.environment())


def cut_command(
    name: Name,
    between: Annotated[
        str,
        typer.Option(
            "--from", help="Nothing passes between NAME and these, a host, server or domain."
        ),
    ] = "",
    direction: OneWay = "both",
    folder: Folder = None,
) -> None:
    """Let no packet pass a link, or between two sides of the lab.

    With --from, `--direction up` cuts what NAME sends, and lets pass what it is sent.
    """
    from lab.faults import Fault

    _add(folder, Fault(name, between, _direction(direction), loss=0.0 if between else 1.0))


def slow_command(
    name: Name,
    mbit: Annotated[float, typer.Argument(help="What is left of its rate, in Mbit/s.")],
    direction: OneWay = "both",
    folder: Folder = None,
) -> None:
    """Make a link slower."""
    from lab.faults import Fault

    _add(folder, Fault(name, "", _direction(direction), bits_per_s=_positive(mbit) * 1e6))


def lose_command(
    name: Name,
    share: Annotated[float, typer.Argument(help="Share of packets that are lost, 0 to 1.")],
    direction: OneWay = "both",
    folder: Folder = None,
) -> None:
    """Lose packets of a link at random."""
    from lab.faults import Fault

    _add(folder, Fault(name, "", _direction(direction), loss=_positive(share)))


def heal_command(
    name: Annotated[str, typer.Argument(help="A host or domain; none: everything.")] = "",
    folder: Folder = None,
) -> None:
    """Make links whole again."""
    from lab.cluster import refuse, running
    from lab.faults import heal

    lab = running(_folder(folder))
    left = heal(lab.faults, name)
    if len(left) == len(lab.faults):
        what = f"of {name}" if name else "in this lab"
        raise refuse(f"nothing {what} is cut, slow or lossy", "name")
    typer.echo(_described(lab.with_faults(left)))


def measure_command(
    job: Annotated[Path, typer.Argument(help="A job file.", show_default=False)],
    steps: Annotated[int, typer.Option(min=1, help="Steps of each placement.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random placement.")] = 0,
    under_load: Annotated[
        bool, typer.Option("--under-load", help="Measure although the machine is busy.")
    ] = False,
    busy: Annotated[
        bool, typer.Option("--busy", help="Compute keeps cores busy, instead of sleeping.")
    ] = False,
    over: Annotated[
        str, typer.Option(help="What carries messages: `sockets`, or `gloo`, if torch is here.")
    ] = "sockets",
    schedule: Annotated[
        bool,
        typer.Option(
            "--schedule",
            help="In place of a step: the all-reduce that `muster place --format msccl` writes.",
        ),
    ] = False,
    folder: Folder = None,
) -> None:
    """Send what a step of a job sends, from real ranks, as placed by muster and otherwise.

    The median of the steps stands beside the formula of `muster estimate` and the simulation.
    """
    from lab.cluster import refuse, running
    from lab.measure import check_over, measure_ways, refuse_load
    from scheduler.cli.render.text import columns, seconds_text

    check_over(over)
    if busy and schedule:
        raise refuse("a schedule computes nothing: leave it out with --schedule", "--busy")
    lab = running(_folder(folder))
    if not under_load:
        refuse_load()
    with _progress("placements") as show:
        found = measure_ways(
            lab, job, steps, seed, show, is_busy=busy, over=over, is_scheduled=schedule
        )
    rows = [["placed", "formula", "simulated", "measured", "fastest", "slowest"]]
    for way, formula_s, simulated_s, measured in found:
        middle = sorted(measured)[len(measured) // 2]
        seconds = (formula_s, simulated_s, middle, min(measured), max(measured))
        rows.append([way, *map(seconds_text, seconds)])
    typer.echo(columns(rows, right={1, 2, 3, 4, 5}))


def down_command(folder: Folder = None) -> None:
    """End the lab and all that runs in it. Logs stay in its folder."""
    from lab.cluster import find, refuse

    lab = find(_folder(folder))
    if lab is None:
        raise refuse(f"no lab in {_folder(folder)}", "folder")
    lab.down()


def _add(folder: Path | None, fault: Fault) -> None:
    from lab.cluster import running
    from lab.faults import add_fault, check_fault

    lab = running(_folder(folder))
    check_fault(lab.plan, fault)
    typer.echo(_described(lab.with_faults(add_fault(lab.faults, fault))))


def _direction(text: str) -> Direction:
    from lab.cluster import refuse
    from lab.faults import Direction

    if text not in list(Direction):
        raise refuse(f"must be up, down or both, not {text!r}", "direction")
    return Direction(text)


def _positive(value: float) -> float:
    from lab.cluster import refuse

    if not value > 0:
        raise refuse(f"must be above 0, not {value:g}", "value")
    return value
