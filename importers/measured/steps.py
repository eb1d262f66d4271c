"""read_steps(): seconds of each step that a training log prints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from scheduler.files.errors import InputError, Problem
from scheduler.files.plugins import RunSteps
from scheduler.files.yaml12 import read_text

MOST_BYTES = 256 << 20
_NUMBER = r"([0-9][0-9.,]*(?:[eE][+-]?[0-9]+)?)"
# What each framework prints of a step, and what makes seconds of it. `tokens`: of the job's step,
# for each GPU; TorchTitan prints tokens a second and GPU.
PATTERNS: tuple[tuple[str, re.Pattern[str], Callable[[float, float], float]], ...] = (
    (
        "Megatron-LM",
        re.compile(rf"elapsed time per iteration \(ms\): *{_NUMBER}"),
        lambda value, _: value / 1e3,
    ),
    (
        "Megatron-DeepSpeed",
        re.compile(rf"elapsed time per iteration \(s\): *{_NUMBER}"),
        lambda value, _: value,
    ),
    ("NeMo", re.compile(rf"train_step_timing in s: *{_NUMBER}"), lambda value, _: value),
    (
        "TorchTitan",
        re.compile(rf"\bstep: *[0-9]+\b.*\b(?:tps|wps): *{_NUMBER}"),
        lambda value, tokens: tokens / value,
    ),
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def read_steps(path: str, tokens_per_gpu: float) -> RunSteps:
    """Return what a log says of its steps, by the first framework of which it has a line.

    `tokens_per_gpu`: of one step of the job. Raises: InputError with the file where it has no step,
    and with the line where one takes no time.
    """
    lines = read_text(path, MOST_BYTES).splitlines()
    for framework, pattern, to_seconds in PATTERNS:
        seconds = []
        for number, line in enumerate(lines, 1):
            if (found := pattern.search(_COLOURS.sub("", line))) is None:
                continue
            try:
                value = float(found[1].rstrip(".,").replace(",", ""))
            except ValueError:
                value = 0.0
            if not 0 < value < math.inf:
                message = f"a step of {found[1]!r}: must be a finite number above 0"
                raise InputError(Problem(framework, message, path, number))
            seconds.append(to_seconds(value, tokens_per_gpu))
        if seconds:
            return RunSteps(path, framework, tuple(seconds))
    known = ", ".join(name for name, *_ in PATTERNS)
    raise InputError(Problem("", f"has no step of {known}", path))
