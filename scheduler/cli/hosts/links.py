"""`muster links`: what links of a server carry; or the switches and cables of a fabric, and what
max-flow proves of them."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.cli import complete
from scheduler.cli.calls import AnswerFormat, Filter, formatted
from scheduler.cli.lists import ListFormat, Listing, asks_list
from scheduler.cli.render.text import columns as aligned
from scheduler.cli.render.text import gbps_text

if TYPE_CHECKING:
    from network.maxflow import Proof
    from network.wiring import Links
    from placement.fabric.tree import Ints


class StripingChoice(StrEnum):
    """Copy of placement.Striping that needs none of its imports."""

    EVEN = "even"
    MINIMAL = "minimal"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("links")(links_command)


@asks_list
def links_command(
    listing: Listing,
    fabric: Annotated[
        str,
        typer.Option(
            help="A preset or a fabric file: show its switches instead of asking the server.",
            autocompletion=complete.fabrics,
            show_default=False,
        ),
    ] = "",
    failed: Annotated[
        list[str] | None,
        typer.Option(
            help="Switches (z0-ctsw03) and cables (z0-r000-rtsw/z0-ctsw03) that are down:"
            " names or hostlist ranges; may be repeated."
        ),
    ] = None,
    striping: Annotated[
        StripingChoice,
        typer.Option(
            help="InfiniBand: even gives every pair of switches equally many cables,"
            " minimal needs the fewest switches."
        ),
    ] = StripingChoice.EVEN,
    show_all: Annotated[
        bool, typer.Option("--all", help="Of a server: also links that are up and open.")
    ] = False,
    filter: Filter = "",
) -> None:
    """List links that are degraded, down, drained or under maintenance on a server.

    With --fabric, show the switches of a fabric: counts, ports and proved bandwidth, of the
    backend network only. Bandwidth is that of the tightest domain of each tier, by
    maximum flow; docs/fabric.md says how switches follow from the fabric file.
    """
    if not fabric:
        if failed:
            raise typer.BadParameter("needs --fabric", param_hint="--failed")
        from scheduler.cli.render import link_tables

        listing.write(
            lambda client: client.list_links(filter, show_all=show_all),
            "links",
            lambda _: link_tables.LINKS,
        )
        return
    output = listing.output
    of_list = listing.columns or listing.sort or listing.no_headers or listing.watch
    if of_list or output is ListFormat.WIDE:
        message = "--columns, --sort, --no-headers, --watch and -o wide are for links of a server"
        raise typer.BadParameter(message, param_hint="--fabric")
    from network.failures import links_without
    from network.maxflow import proofs
    from network.wiring import Striping, links
    from scheduler.files.inputs import load_fabric

    whole = links(load_fabric(fabric), Striping(striping.value))
    left = links_without(whole, failed or ())
    body = {**_body(left, proofs(left)), "failed": failed or []}
    is_table = output is ListFormat.TABLE
    text = _page(left, body) if is_table else formatted(body, AnswerFormat(output.value))
    sys.stdout.write(f"{text}\n")


def _body(links: Links, proofs: tuple[Proof, ...]) -> dict[str, Any]:
    """Counts of what is left; ports as smallest and largest. Units: bytes per second."""
    layers = []
    for level, layer in enumerate(links.layers):
        layers.append(
            {
                "switch": layer.name,
                "serves": layer.tier,
                "domains": len(layer.domains),
                "switches": layer.switch_count,
                "ports_down": _ends(links.down_ports(level)),
                "ports_up": _ends(links.up_ports(level)),
                "cables_up": len(layer.uplinks),
            }
        )
    return {
        "fabric": {"name": links.fabric.name, "digest": links.fabric.digest},
        "nics": len(links.leaf_by_gpu),
        "nic_gbps": links.fabric.nic_gbps,
        "rails": links.rails,
        "switches": sum(layer["switches"] for layer in layers),
        "layers": layers,
        "bandwidth": [_bandwidth(proof) for proof in proofs],
    }


def _ends(counts: Ints) -> list[int]:
    return [int(counts.min()), int(counts.max())]


def _bandwidth(proof: Proof) -> dict[str, Any]:
    return {
        "what": proof.what,
        "tier": proof.tier,
        "domain": proof.domain,
        "injection_bytes_per_s": round(proof.injection),
        "bytes_per_s": round(proof.flow),
        "oversubscription": round(proof.oversubscription, 6) if proof.flow else None,
        "nominal": proof.nominal,
    }


def _page(links: Links, body: dict[str, Any]) -> str:
    rails = f", {links.rails} rails" if links.rails > 1 else ""
    head = (
        f"{links.fabric.name}, backend network: {body['nics']:,} NICs of"
        f" {links.fabric.nic_gbps:g} Gbit/s{rails}, {body['switches']:,} switches"
    )
    rows = [["switch", "serves", "domains", "switches", "ports down", "ports up", "cables up"]]
    for layer in body["layers"]:
        numbers = (layer["domains"], layer["switches"])
        rows.append(
            [
                layer["switch"],
                layer["serves"],
                *(f"{n:,}" for n in numbers),
                _span(layer["ports_down"]),
                _span(layer["ports_up"]),
                f"{layer['cables_up']:,}",
            ]
        )
    flows = [["max flow", "NICs send", "network carries", "ratio", "stated"]]
    flows += [_flow_row(proof) for proof in body["bandwidth"]]
    parts = [head, aligned(rows, {2, 3, 4, 5, 6})]
    if body["failed"]:
        parts[0] += f"\nfailed: {', '.join(body['failed'])}"
    if len(flows) > 1:
        parts.append(aligned(flows, {1, 2, 3, 4}))
    return "\n\n".join(parts)


def _flow_row(proof: dict[str, Any]) -> list[str]:
    names = {"out of": "out of {}", "inside": "between the halves of {}"}
    where = names[proof["what"]].format(proof["domain"] or "the fabric")
    ratio = proof["oversubscription"]
    return [
        where,
        _rate(proof["injection_bytes_per_s"]),
        _rate(proof["bytes_per_s"]),
        "none" if ratio is None else f"{ratio:.4g}:1",
        f"{proof['nominal']:g}:1",
    ]


def _rate(bytes_per_s: int) -> str:
    return gbps_text(bytes_per_s * 8 / 1e9)


def _span(ends: list[int]) -> str:
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
