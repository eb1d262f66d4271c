"""One target of a long run, in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from drills.fuzz import calls
from drills.fuzz.targets import Target, targets

KEPT = Path("build/fuzz")
LIMIT_S = 20.0  # one input of a reader
MOST_FAULTS = 5


@dataclass(frozen=True)
class Count:
    """Counts of results over a target's inputs. `faults`: the first few, as text."""

    name: str
    inputs: int
    taken: int
    seconds: float
    slowest_s: float
    faults: tuple[str, ...]


class TooSlow(Exception):
    """One input took longer than it may."""


def work(task: tuple[str, int, int]) -> Count:
    name, inputs, seed = task
    warnings.simplefilter("error")
    random = Random(f"{seed}/{name}")
    if name.startswith("call "):
        source = calls.calls(random, name.removeprefix("call "))
        return asyncio.run(_calls(name, source, inputs))
    target = next(target for target in targets() if target.name == name)
    return _files(target, inputs, random)


def _files(target: Target, inputs: int, random: Random) -> Count:
    signal.signal(signal.SIGALRM, _too_slow)
    taken, slowest_s, faults = 0, 0.0, list[str]()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=calls.scratch()) as folder:
        file = Path(folder) / "input"
        done = 0
        while done < inputs and len(faults) < MOST_FAULTS:
            raw = target.input(random)
            start = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            try:
                taken += target.run(raw, file)
            except Exception:
                faults.append(_keep(target.name, len(faults), raw))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            slowest_s = max(slowest_s, time.perf_counter() - start)
            done += 1
    return Count(target.name, done, taken, time.perf_counter() - began, slowest_s, tuple(faults))


async def _calls(name: str, source: Iterator[calls.FuzzedCall], inputs: int) -> Count:
    done, taken, slowest_s, faults = 0, 0, 0.0, list[str]()
    began = last = time.perf_counter()

    def note(_: calls.FuzzedCall, was_taken: bool) -> None:
        nonlocal done, taken, slowest_s, last
        now = time.perf_counter()
        slowest_s, last = max(slowest_s, now - last), now
        done, taken = done + 1, taken + was_taken

    while done < inputs and len(faults) < MOST_FAULTS:
        try:
            await calls.run(source, inputs - done, note)
        except Exception as error:
            done += 1
            faults.append(_keep(name, len(faults), "\n".join(error.__notes__).encode()))
    return Count(name, done, taken, time.perf_counter() - began, slowest_s, tuple(faults))


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TooSlow(f"more than {LIMIT_S} s")


def _keep(name: str, number: int, raw: bytes) -> str:
    """Write the input that broke it; where, and the end of the traceback."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{name.replace(' ', '-')}-{number}"
    path.write_bytes(raw)
    return f"{path}\n{traceback.format_exc(limit=-6)}"
