"""The commands for hosts: hosts, host, cordon, drain, uncordon, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from placement import BadInput
from scheduler.cli import complete
from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    AnswerFormat,
    AskedServer,
    DryRun,
    Etag,
    Filter,
    States,
    Why,
    asks_server,
    checked_only,
    each_done,
    expanded,
    state_numbers,
)
from scheduler.cli.lists import Listing, asks_list
from scheduler.cli.numbers import MOST

if TYPE_CHECKING:
    from scheduler.client.client import ChangeOptions, Client
    from scheduler.v1 import host_pb2, service_pb2

Change = Literal["cordon", "drain", "uncordon"]
HostName = Annotated[
    str, typer.Argument(help="Name of the host.", autocompletion=complete.hosts, show_default=False)
]
HostNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="HOST...",
        help="Names of hosts or domains, with ranges such as z0-r001-h[01-16].",
        autocompletion=complete.hosts,
        show_default=False,
    ),
]
LinkName = Annotated[
    str, typer.Option("--link", help="The uplink of this domain instead of a host.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("hosts")(list_hosts)
    app.command("host")(show_host)
    for verb in CHANGES:
        app.command(verb)(_changing(verb))
    app.command()(report)


@asks_list
def list_hosts(
    listing: Listing,
    state: States = None,
    name: Annotated[str, typer.Option("--job", help="Only hosts that this job holds.")] = "",
    filter: Filter = "",
    lemons: Annotated[
        bool,
        typer.Option(
            "--lemons", help="Only lemons: hosts that fail again and again, with their counts."
        ),
    ] = False,
) -> None:
    """List hosts, their health and the jobs that hold them."""
    from scheduler.cli.render import messages
    from scheduler.v1 import host_pb2

    states = state_numbers(host_pb2.HostState, "HOST_STATE_", state)

    def fetch(client: Client) -> service_pb2.ListHostsResponse:
        page = client.hosts_answer(states, name, filter)
        if lemons:
            listed = [host for host in page.hosts if host.record.lemon]
            del page.hosts[:]
            page.hosts.extend(listed)
        return page

    table = messages.LEMONS if lemons else messages.HOSTS
    listing.write(fetch, "hosts", lambda _: table)


@asks_server
def show_host(
    server: AskedServer,
    name: HostName,
) -> None:
    """Show one host: its job, its record, the last probe by its agent, and its etag."""
    from scheduler.cli.render import messages

    server.show(lambda client: client.get_host(name), messages.host_text)


# What each change of hosts does, and words of its example.
CHANGES: dict[Change, tuple[str, str]] = {
    "cordon": (
        "Keep new gangs off hosts, or from crossing a link; gangs that run go on.",
        "z0-r001-h03 'z1-r[000-003]' --reason 'firmware'",
    ),
    "drain": (
        "Cordon hosts or a link and move their gangs away, or wait until they end.",
        "'z0-r001-h[01-04]' --reason 'bad fan'",
    ),
    "uncordon": ("Return cordoned or draining hosts, or a link, to service.", "z0-r001"),
}


def _changing(verb: Change) -> Callable[..., None]:
    """The command that makes one of the changes."""

    def change(
        server: AskedServer,
        hosts: HostNames = None,
        link: LinkName = "",
        reason: Why = "",
        etag: Etag = "",
        dry_run: DryRun = False,
    ) -> None:
        _change(server, verb, hosts or (), link, reason, {"etag": etag, "dry_run": dry_run})

    effect, example = CHANGES[verb]
    change.__doc__ = f"""{effect}

    A domain stands for its hosts. Of several hosts, refused ones are named and the rest is done.
    Example: muster {verb} {example}
    """
    return asks_server(change)


class ReportFormat(StrEnum):
    """Format of an answer, or of an imported file."""

    TABLE = "table"
    JSON = "json"
    DCGM_JSON = "dcgm-json"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    PORTS_CSV = "ports-csv"
    IBDIAGNET = "ibdiagnet"
    UFM_JSON = "ufm-json"
    SONIC = "sonic"


_OF_PORTS = (
    *(ReportFormat.PORTS_CSV, ReportFormat.IBDIAGNET),
    *(ReportFormat.UFM_JSON, ReportFormat.SONIC),
)


def report(
    host: Annotated[
        str,
        typer.Argument(
            help="Name of the host, or of a domain for a switch.",
            autocompletion=complete.hosts,
            show_default=False,
        ),
    ] = "",
    signal: Annotated[
        str,
        typer.Option(
            help="Kind of signal, e.g. gpu-lost, xid, link-flap, tor-down, repaired"
            " (docs/lifecycle.md has them all).",
            show_default=False,
        ),
    ] = "",
    detail: Annotated[str, typer.Option(help="Text from the monitor.")] = "",
    value: Annotated[
        int, typer.Option(min=0, max=MOST, help="Number of errors; 0 counts as one.")
    ] = 0,
    gpu: Annotated[
        int | None, typer.Option(min=0, max=MOST, help="Index of the GPU in the host.")
    ] = None,
    xid: Annotated[int, typer.Option(min=0, max=MOST, help="The XID; implies --signal xid.")] = 0,
    link: LinkName = "",
    share: Annotated[
        str,
        typer.Option(
            help="Share of its nominal capacity that the link carries: 0.875, 87.5% or 14/16."
        ),
    ] = "",
    down: Annotated[bool, typer.Option("--down", help="The link is down.")] = False,
    up: Annotated[
        bool, typer.Option("--up", help="The link is up, at its nominal capacity.")
    ] = False,
    failed: Annotated[
        list[str] | None,
        typer.Option(
            help="A switch (z0-ctsw03) or cable (z0-r000-rtsw/z0-ctsw03) that is down, or a range:"
            " reports what is left of its uplinks; may be repeated.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--import", help="A file with reports of many hosts or ports; - is stdin."),
    ] = None,
    uplinks: Annotated[
        str,
        typer.Option(
            help="With formats of ports: a CSV file that says which ports are the uplink of which"
            " domain (domain,device,port,gbps).",
            show_default=False,
        ),
    ] = "",
    columns: Annotated[
        str,
        typer.Option(
            help="With ports-csv: names of the columns in the file, e.g."
            " device=switch,port=ifName.",
            show_default=False,
        ),
    ] = "",
    output: Annotated[
        ReportFormat,
        typer.Option("--format", "-o", help="Output format; with --import: the format of FILE."),
    ] = ReportFormat.TABLE,
    dry_run: DryRun = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Report a health signal of a host or the capacity of a link, or import reports from a file."""
    if failed:
        of_links = {"--link": link, "--share": share, "--down": down, "--up": up}
        others = {"HOST": host, "--signal": signal, "--detail": detail, "--import": file}
        has_format = output is not ReportFormat.TABLE
        _refuse_others("--failed", {**others, **of_links, "--format": has_format})
        from scheduler.cli.hosts import bulk

        bulk.report_failed(failed, address, dry_run=dry_run)
        return
    if link or share or down or up:
        _refuse_others("--link", {"HOST": host, "--signal": signal, "--import": file})
        from scheduler.cli.render import link_tables

        left = _share(link, share, down=down, up=up)
        AskedServer(AnswerFormat(output.value), address).show(
            lambda client: client.report_link(link, left, detail, dry_run=dry_run),
            link_tables.link_text,
        )
        checked_only(dry_run)
        return
    signal = signal or ("xid" if xid else "")
    if file is not None:
        from scheduler.cli.hosts import bulk

        if host or signal:
            raise typer.BadParameter("cannot be used with HOST or --signal", param_hint="--import")
        if output in _OF_PORTS:
            bulk.report_ports(file, output.value, uplinks, columns, address, dry_run=dry_run)
            return
        _without_ports(uplinks, columns)
        bulk.report_file(file, output.value, address, dry_run=dry_run)
        return
    _without_ports(uplinks, columns)
    for given, option in ((host, "HOST"), (signal, "--signal")):
        if not given:
            raise typer.BadParameter("is missing", param_hint=option)
    if output not in (ReportFormat.TABLE, ReportFormat.JSON):
        raise typer.BadParameter("is a file format: use it with --import", param_hint="--format")
    server = AskedServer(AnswerFormat(output.value), address)
    with server.connected() as client:
        reported = client.report_host(
            host, signal, detail, value=value, gpu=gpu, xid=xid, dry_run=dry_run
        )
        if reported is not None:
            server.write(reported, _host_text)
        else:  # of a domain all hosts
            server.write(client.hosts_answer(filter=f"domains:{host}"), _hosts_text)
    checked_only(dry_run)


def _refuse_others(option: str, others: Mapping[str, object]) -> None:
    """Raises: BadParameter where one of the options that `option` has no use for is given."""
    for other, given in others.items():
        if given:
            raise typer.BadParameter(f"cannot be used with {other}", param_hint=option)


def _without_ports(uplinks: str, columns: str) -> None:
    """Raises: BadParameter where one is given."""
    for given, option in ((uplinks, "--uplinks"), (columns, "--columns")):
        if given:
            message = "goes with --import and --format ports-csv, ibdiagnet, ufm-json or sonic"
            raise typer.BadParameter(message, param_hint=option)


def _share(link: str, share: str, *, down: bool, up: bool) -> float:
    """Raises: BadParameter."""
    from scheduler.files.links.linksfile import parse_share

    if not link:
        raise typer.BadParameter("is missing", param_hint="--link")
    if bool(share) + down + up != 1:
        raise typer.BadParameter("give exactly one", param_hint="--share, --down or --up")
    if not share:
        return 0.0 if down else 1.0
    try:
        return parse_share(share, "--share")
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint="--share") from None


def _change(
    server: AskedServer,
    verb: Change,
    hosts: Sequence[str],
    link: str,
    reason: str,
    options: ChangeOptions,
) -> None:
    """Change every host, and show them after it; or the uplink of the domain `link`.
    Raises: BadParameter unless exactly one of the two is given."""
    from scheduler.cli.render import link_tables
    from scheduler.v1 import service_pb2

    if bool(hosts) == bool(link):
        raise typer.BadParameter("give exactly one", param_hint="HOST or --link")
    done, code = list["host_pb2.Host"](), 0
    with server.connected() as client:
        change = getattr(client, f"{verb}_host")
        names = [] if link else host_names(client, expanded(hosts))
        if options["etag"] and len(names) > 1:
            raise typer.BadParameter("goes with one host, not with several", param_hint="--etag")
        if link:
            changed = client.change_link(verb, link, reason, **options)
            server.write(changed, link_tables.link_text)
        elif len(names) == 1:
            server.write(change(names[0], reason, **options), _host_text)
        else:
            done, code = each_done(client, names, lambda _, host: change(host, reason, **options))
    if done:
        server.write(service_pb2.ListHostsResponse(hosts=done), _hosts_text)
    if code:
        raise typer.Exit(code)
    checked_only(options["dry_run"])


def _host_text(host: host_pb2.Host) -> str:
    from scheduler.cli.render import messages

    return messages.hosts_text([host])


def _hosts_text(answer: service_pb2.ListHostsResponse) -> str:
    from scheduler.cli.render import messages

    return messages.hosts_text(answer.hosts)


def host_names(client: Client, names: Sequence[str]) -> list[str]:
    """Return names of hosts, each once, with the hosts of a domain in its place; unknown names
    stay."""
    from scheduler.client import ServiceError

    if len(names) == 1:
        try:
            return [client.get_host(names[0]).name]
        except ServiceError as error:
            if error.code != "NOT_FOUND":
                raise
    inside: dict[str, list[str]] = {}
    for host in client.list_hosts():
        for domain in host.domains:
            inside.setdefault(domain, []).append(host.name)
        inside[host.name] = [host.name]
    return list(dict.fromkeys(host for name in names for host in inside.get(name, [name])))
