"""What a shell offers for what is half typed: jobs, hosts and domains, tenants, windows, states and
fabrics. `muster --install-completion` tells bash, zsh or fish to ask.

A server is asked as the command would ask it, by the environment and the current context, and what
it does not say within WAIT_S is not offered: a shell shows no errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from scheduler.client import Client

WAIT_S = 2.0
MOST = 500  # names on offer


def jobs(incomplete: str) -> list[str]:
    """Complete names of live jobs; of another tenant's jobs behind TENANT/."""
    from scheduler.cli.contexts import quoted
    from scheduler.cli.render.names import typed

    tenant, slash, name = incomplete.rpartition("/")
    terms = [f'name = {quoted(name)[:-1]}*"'] if name else []
    terms += [f"tenant = {quoted(tenant)}"] if slash else []

    def names(client: Client) -> Iterable[str]:
        answer = client.jobs_answer(filter=" AND ".join(terms), recent_only=True)
        return (typed(job.name) for job in answer.jobs)

    return _answered(names, incomplete)


def hosts(incomplete: str) -> list[str]:
    """Complete names of hosts and domains."""
    from scheduler.cli.contexts import quoted

    def names(client: Client) -> Iterable[str]:
        begin = f'name = {quoted(incomplete)[:-1]}*"' if incomplete else ""
        listed = client.list_hosts(filter=begin)
        domains = dict.fromkeys(domain for host in listed for domain in host.domains)
        return (*domains, *(host.name for host in listed))

    return _answered(names, incomplete)


def tenants(incomplete: str) -> list[str]:
    return _answered(
        lambda client: (tenant.name for tenant in client.list_tenants().tenants), incomplete
    )


def windows(incomplete: str) -> list[str]:
    return _answered(
        lambda client: (window.name for window in client.windows_answer().windows), incomplete
    )


def states(context: typer.Context, incomplete: str) -> list[str]:
    """Complete states of what the command lists."""
    from scheduler.v1 import host_pb2, job_pb2, window_pb2

    enum, prefix = {
        "hosts": (host_pb2.HostState, "HOST_STATE_"),
        "list": (window_pb2.WindowState, "WINDOW_STATE_"),
    }.get(context.info_name or "", (job_pb2.JobState, "JOB_STATE_"))
    return _matching([key.removeprefix(prefix).lower() for key in enum.keys()[1:]], incomplete)


def fabrics(incomplete: str) -> list[str]:
    """Complete presets of fabrics, and files."""
    from glob import escape, glob

    from placement.fabric.reader import PRESETS

    files = (f"{path}/" if os.path.isdir(path) else path for path in glob(f"{escape(incomplete)}*"))
    return _matching([*PRESETS, *sorted(files)], incomplete)


def _answered(ask: Callable[[Client], Iterable[str]], incomplete: str) -> list[str]:
    """Nothing where no server answers, or the caller may not ask."""
    from scheduler.cli.contexts import DEFAULT_ADDRESS, keep_secrets_from, quiet_grpc, use_context

    quiet_grpc()
    from scheduler.client import Client, ServiceError
    from scheduler.files.errors import InputError

    try:
        use_context("")
        address = os.environ.get("MUSTER_ADDRESS", DEFAULT_ADDRESS)
        keep_secrets_from(address)
        with Client(address, WAIT_S) as client:
            return _matching(ask(client), incomplete)
    except (ServiceError, InputError):
        return []


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)][:MOST]
