"""`muster fabric`: import topology files, look at a fabric, change a server's."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement import BadInput
from scheduler.cli.calls import AnswerFormat, Output, formatted
from scheduler.cli.hosts.fabrics import apply_command, get_command
from scheduler.cli.parameters import FabricName, OutFile
from scheduler.cli.render.text import gbps_text, table

if TYPE_CHECKING:
    from placement.fabric.tree import Fabric


class FileFormat(StrEnum):
    """Formats of topology files that can be read: the keys of fabricfiles.FORMATS."""

    SLURM = "slurm"
    SLURM_BLOCK = "slurm-block"
    SLURM_YAML = "slurm-yaml"
    SLURM_YAML_BLOCK = "slurm-yaml-block"
    IBNETDISCOVER = "ibnetdiscover"
    KUBERNETES = "kubernetes"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        name="fabric",
        help="Import topology files; show a fabric; change the fabric of a server.",
        no_args_is_help=True,
    )
    group.command("import")(import_command)
    group.command("show")(show_command)
    group.command("apply")(apply_command)
    group.command("get")(get_command)
    app.add_typer(group)


def import_command(
    file: Annotated[
        str, typer.Argument(help="The topology file; - is standard input.", show_default=False)
    ],
    form: Annotated[
        FileFormat,
        typer.Option(
            "--from", help="Its format; slurm reads trees and blocks.", show_default=False
        ),
    ],
    overlay: Annotated[
        Path | None,
        typer.Option(help="YAML with facts that the file lacks: names, GPUs, bandwidths of tiers."),
    ] = None,
    output: OutFile = None,
    topology: Annotated[
        str | None,
        typer.Option(help="Topology of a slurm-yaml file. (default: the file's default)"),
    ] = None,
    label_keys: Annotated[
        str | None,
        typer.Option(help="kubernetes: labels that are tiers, outermost first, e.g. zone,rack."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(help="Keep the hosts whose whole name matches this regular expression."),
    ] = None,
) -> None:
    """Make a fabric file from a topology file.

    Notes on standard error list all assumptions and omissions.
    """
    from scheduler.files import fabrics

    if topology and not form.startswith("slurm-yaml"):
        raise typer.BadParameter(f"{form} files have only one", param_hint="--topology")
    if label_keys and form is not FileFormat.KUBERNETES:
        raise typer.BadParameter(f"{form} files have no labels", param_hint="--label-keys")
    keys = tuple(key.strip() for key in label_keys.split(",")) if label_keys else ()
    choices = fabrics.Choices(topology, keys, _pattern(hosts))
    source = "/dev/stdin" if file == "-" else file
    built = fabrics.read_fabric(source, form.value, str(overlay) if overlay else None, choices)
    _write(fabrics.dump(built.fabric), output)
    _say(f"note: {note}" for note in built.notes)
    if output:
        _say([f"{output}: {_head(built.fabric)}"])


def show_command(fabric: FabricName, output: Output = AnswerFormat.TABLE) -> None:
    """Show tiers, counts and bandwidths of a fabric, and warn of odd values."""
    from scheduler.files.fabrics.summary import summary
    from scheduler.files.inputs import load_fabric

    network = load_fabric(fabric)
    body = summary(network)
    text = _page(network, body) if output is AnswerFormat.TABLE else formatted(body, output)
    sys.stdout.write(f"{text}\n")


def _pattern(text: str | None) -> str | None:
    """Raises: BadInput when it is not a regular expression."""
    import re

    try:
        re.compile(text or "")
    except re.error as error:
        raise BadInput("--hosts", f"is not a regular expression: {error}") from None
    return text


def _write(text: str, output: Path | None, option: str = "--output") -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        from scheduler.files.atomic_file import write

        write(output, text, option)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line, err=True)


def _head(fabric: Fabric) -> str:
    tiers = [f"{len(tier.domains):,} x {tier.name}" for tier in fabric.tiers]
    return f"{fabric.name}, {', '.join([*tiers, f'{fabric.host_count:,} hosts'])}"


def _page(fabric: Fabric, body: dict[str, Any]) -> str:
    kinds = ", ".join(body["gpu_kinds"])
    named = "" if body["gpu_is_assumed"] else f", {kinds}"
    head = (
        f"{fabric.name}: {fabric.kind}, {body['hosts']:,} hosts, {body['gpus']:,} GPUs{named}"
        f" ({fabric.gpus_per_host} a host; each {gbps_text(fabric.nic_gbps)} out of the host,"
        f" {gbps_text(fabric.scale_up_gbps)} inside)"
    )
    heads = ["tier", "domains", "hosts each", "uplink each", "oversubscribed", "names"]
    rows = [
        [
            tier["name"],
            f"{tier['domains']:,}",
            _span([f"{n:,}" for n in tier["hosts"]]),
            _span([gbps_text(gbps) for gbps in tier["uplink_gbps"]]),
            _span([f"{ratio:g}:1" for ratio in tier["oversubscription"]]),
            _ends(tier["first"], tier["last"]),
        ]
        for tier in body["tiers"]
    ]
    hosts = _ends(body["first_host"], body["last_host"])
    injection = gbps_text(fabric.gpus_per_host * fabric.nic_gbps)
    rows.append([fabric.spec["tiers"][-1]["name"], f"{body['hosts']:,}", "", injection, "", hosts])
    notes = [f"note: {note}" for note in body["notes"]]
    parts = [head, table(heads, rows), _stores_text(body["stores"]), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)


def _stores_text(stores: list[dict[str, Any]]) -> str:
    """Write what each store of the fabric does and holds; empty where its file states none."""
    rows = list[list[str]]()
    for store in stores:
        holds, name = store["capacity_tb"], store["name"] or "storage"
        rows.append([name, *_rates(store), f"{holds:,g} TB" if holds else ""])
        rows += [[f"  each {tier}", *_rates(path), ""] for tier, path in store["by_tier"].items()]
        if readers := store["readers"]:
            each = f"{readers['gb_per_s']:,g} GB/s each"
            rows.append([f"  {readers['hosts']:,} readers", "", each, ""])
    return table(["store", "writes", "reads", "holds"], rows)


def _rates(limit: dict[str, Any]) -> list[str]:
    rates = (limit["write_gb_per_s"], limit["read_gb_per_s"])
    return [f"{rate:,g} GB/s" if rate else "" for rate in rates]


def _span(ends: list[str]) -> str:
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def _ends(first: str, last: str) -> str:
    return first if first == last else f"{first} .. {last}"
