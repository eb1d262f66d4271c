"""What a told demonstration needs: a narrator, a server process, and patience with limits."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from scheduler.cli.render.text import columns

MUSTER = str(Path(sys.executable).with_name("muster"))
PATIENCE_S = 60  # for any one thing that is waited for
WIDTH = 92

console = Console(highlight=False, soft_wrap=True)


class NotAsTold(Exception):
    """A step did not do what the story says."""


def heading(text: str) -> None:
    console.print()
    console.print(Text(text, style="bold cyan"))
    console.print(Text("-" * len(text), style="cyan"))


def say(text: str) -> None:
    console.print()
    console.print(Text(textwrap.fill(text, WIDTH)))


def command(text: str) -> None:
    console.print(Text(f"  $ {text}", style="bold"))


def answer(text: str) -> None:
    console.print(Text(f"  {text}", style="dim"))


def table(rows: Sequence[Sequence[str]], right: Iterable[int]) -> None:
    console.print()
    console.print(Text(textwrap.indent(columns(rows, right=set(right)), "  ")))


def check(is_so: bool, claim: str) -> None:
    if not is_so:
        raise NotAsTold(claim)


@contextmanager
def within(seconds: int, goal: str) -> Iterator[None]:
    """Give up on `goal` after so many seconds."""

    def give_up(*_: object) -> NoReturn:
        raise NotAsTold(f"{goal} took longer than {seconds} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


class Server:
    """`muster serve` on one store, at the address that it took when first started."""

    def __init__(self, folder: Path, fabric: str, options: Sequence[str] = ()) -> None:
        self._options = options
        self.store = folder / "muster.db"
        self.address = "127.0.0.1:0"
        self.errors = folder / "server.log"
        self._fabric = fabric
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """The line with which the server says that it is ready."""
        arguments = ["serve", "--fabric", self._fabric, "--store", f"sqlite:///{self.store}"]
        arguments += self._options
        with self.errors.open("a") as errors:
            # A session of its own: Ctrl-C ends the story, which then ends the server.
            process = subprocess.Popen(
                [MUSTER, *arguments, "--listen", self.address],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._process = process
        assert process.stdout is not None
        with within(PATIENCE_S, "the start of the server"):
            line = process.stdout.readline().strip()
        check(" on 127.0.0.1:" in line, f"the server did not start: {self.errors.read_text()}")
        self.address = line.partition(" on ")[2].partition(",")[0]
        return line

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait; the exit code. 0 when nothing runs."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise NotAsTold(f"the server did not stop on {number.name}") from None
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def close(self) -> None:
        self.end(signal.SIGKILL)
