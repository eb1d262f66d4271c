"""How commands end that talk to a server, as docs/operations.md has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from placement.errors import BadInput
from scheduler.cli import exit_codes, program
from scheduler.files.errors import InputError
from tests.serving import create, serving

JOB = "name: {name}\nparallelism: {{dp: {dp}}}\ntraffic: {{dp: 1}}\n"


async def test_a_command_ends_as_the_page_says(tmp_path: Path) -> None:
    program.load_commands()
    fits, never, wrong = (tmp_path / name for name in ("fits.yaml", "never.yaml", "wrong.yaml"))
    fits.write_text(JOB.format(name="b", dp=8))
    never.write_text(JOB.format(name="c", dp=8_000))
    wrong.write_text("name: d\ncolour: red\n")
    cases: list[tuple[int, list[str]]] = [
        (0, ["submit", str(fits)]),
        (0, ["job", "a"]),
        (0, ["host", "z0-r0-h0"]),
        (0, ["tenant", "default"]),
        (0, ["health"]),
        (1, ["submit", str(fits), "--request-id", "other"]),
        (1, ["job", "nobody"]),
        (1, ["cancel", "nobody"]),
        (1, ["explain", "nobody"]),
        (1, ["host", "nowhere"]),
        (1, ["cordon", "nowhere"]),
        (1, ["tenant", "nobody"]),
        (1, ["window", "get", "none"]),
        (1, ["cancel", "a", "--etag", "0123"]),
        (2, ["submit", str(wrong)]),
        (2, ["jobs", "--filter", "colour = red"]),
        (2, ["tenants", "--filter", "colour = red"]),
        (2, ["report", "z0-r0-h0", "--signal", "hiccups"]),
        (2, ["store", "verify", "--store", f"sqlite:///{tmp_path}/none.db"]),
        (4, ["submit", str(never)]),
        (4, ["submit", str(never), "--dry-run"]),
        (4, ["defrag", "--for-hosts", "99999"]),
        (4, ["defrag", "--for", "wide"]),
        (2, ["store", "compact", "--keep-days", "36501"]),
        (2, ["serve", "--resize-every-s", str(2**31)]),
        (2, ["serve", "--keep-log-days", "36501"]),
        (2, ["serve", "--lease-s", "86401"]),
        (2, ["serve", "--lease-s", "9"]),  # of a store that servers share
        (2, ["serve", "--advertise", "127.0.0.1:7443"]),
        (2, ["serve", "--advertise", "nowhere", "--store", "postgresql://127.0.0.1:1/x"]),
        (2, ["serve", "--snapshot-every", str(2**31)]),
        (2, ["serve", "--least-gain-percent", str(2**31)]),
    ]
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a"))
        await served.stub.CreateJob(create("wide", 8))  # no zone has so many hosts
        for code, words in cases:
            ended, said = await asyncio.to_thread(_run, words, served.ready.address)
            assert ended == code, (words, said)
            assert said
        address = served.ready.address
    for words in (["jobs"], ["health"]):
        ended, said = await asyncio.to_thread(_run, words, address)
        assert ended == 1
        assert address in said


def _run(words: list[str], address: str) -> tuple[int, str]:
    """Exit code and what was said, as `main` has it."""
    found = CliRunner().invoke(program.app, words, env={"MUSTER_ADDRESS": address})
    if isinstance(found.exception, InputError | BadInput):
        return exit_codes.BAD_INPUT, str(found.exception)
    return found.exit_code, found.output
