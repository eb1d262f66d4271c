"""A placement in seconds of step time: JSON for programs, tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.collectives import Algorithm
from placement.hostset import to_mask
from placement.recommend import Advice, Choice, advice
from placement.request import Placement
from placement.steptime import Assumptions, StepTime, at_random, by_name, step_time
from scheduler.cli.text import bytes_text, columns, percent_text, seconds_text

if TYPE_CHECKING:
    from scheduler.cli.answers import Question

MUSTER, BY_NAME, AT_RANDOM = "muster", "by name", "at random"
LONG_BUBBLE = 0.25  # of compute: worth a word


@dataclass(frozen=True, slots=True)
class Estimate:
    """A job on one fabric: a step as placed, and of the same gang placed otherwise.

    `steps`: (way, step), muster's first. `advice`: on the axes as muster placed them.
    """

    asked: Question
    steps: tuple[tuple[str, StepTime], ...]
    advice: tuple[Advice, ...]

    @property
    def placed(self) -> StepTime:
        return self.steps[0][1]


def estimate(
    asked: Question, answer: Placement, assumed: Assumptions, seed: int = 0
) -> Estimate | None:
    """None when no two ranks ever talk.

    The other ways take the same number of the same free hosts: the first by name in
    consecutive ranks, and `seed`'s at random.
    """
    fabric, gang = asked.fabric, len(answer.hosts)
    free = np.flatnonzero(to_mask(asked.free, fabric.host_count)).astype(np.int64)
    ways: dict[str, Sequence[int]] = {
        MUSTER: answer.hosts,
        BY_NAME: by_name(fabric, free, gang),
        AT_RANDOM: at_random(free, gang, seed),
    }
    steps = tuple(
        (way, step_time(fabric, asked.request, hosts, assumed)) for way, hosts in ways.items()
    )
    if not steps[0][1].axes:
        return None
    return Estimate(asked, steps, advice(fabric, asked.request, answer.hosts))


# --- JSON --------------------------------------------------------------------


def to_mapping(found: Estimate) -> dict[str, Any]:
    """`placements` by way; the layers of muster's axes and the advice beside them."""
    return {
        "placements": {way.replace(" ", "_"): _step(step) for way, step in found.steps},
        "collectives": {item.axis: _advice(item) for item in found.advice},
    }


def _step(step: StepTime) -> dict[str, Any]:
    """`step_seconds` is what communication takes by itself when compute is not known."""
    return {
        "step_seconds": step.seconds,
        "compute_seconds": step.compute_s or None,
        "bubble_seconds": step.bubble_s,
        "exposed_seconds": step.exposed_s,
        "busiest_link": {"layer": step.busiest_link, "seconds": step.busiest_link_s},
        "model_flops": step.flops or None,
        "mfu": step.mfu,
        "axes": {
            axis.load.traffic.axis: {
                "runs_on": axis.load.runs_on,
                "bytes_per_gpu": round(axis.load.bytes_per_gpu),
                "seconds": axis.seconds,
                "exposed_seconds": axis.exposed_s,
                "layers": {
                    load.layer: {
                        "bytes_per_step": load.bytes_per_step,
                        "busiest": load.domain,
                        "busiest_bytes_per_step": load.busiest_bytes_per_step,
                        "seconds": load.seconds,
                        "share": load.seconds / step.seconds,
                    }
                    for load in axis.load.loads
                },
            }
            for axis in step.axes
        },
    }


def _advice(item: Advice) -> dict[str, Any]:
    return {
        "used": item.used.value,
        "recommended": item.best.algorithm.value,
        "algorithms": {
            choice.algorithm.value: {
                "cut_bytes_per_step": choice.cut_bytes,
                "seconds": choice.seconds,
            }
            for choice in item.choices
        },
    }


# --- text --------------------------------------------------------------------


def ways_text(estimates: Sequence[Estimate]) -> str:
    """One line for each way to place the job, fabric by fabric."""
    axes = [axis.load.traffic.axis for axis in estimates[0].placed.axes]
    is_known = estimates[0].placed.compute_s > 0
    head = ["fabric", "placed", "step" if is_known else "communication", "", "MFU", "bubble"]
    rows = [[*head, *axes, "busiest link", ""]]
    for found in estimates:
        for way, step in found.steps:
            fabric = found.asked.fabric.name if way == MUSTER else ""
            rows.append([fabric, way, *_way(step, found.placed)])
    return columns(rows, right={2, 3, 4, 5, *range(6, 6 + len(axes)), 7 + len(axes)})


def _way(step: StepTime, best: StepTime) -> list[str]:
    change = step.seconds / best.seconds - 1 if best.seconds else 0.0
    return [
        seconds_text(step.seconds),
        "" if step is best else f"{100 * change:+.1f} %",
        percent_text(step.mfu) if step.mfu is not None else "",
        seconds_text(step.bubble_s),
        *(seconds_text(axis.exposed_s) for axis in step.axes),
        step.busiest_link,
        seconds_text(step.busiest_link_s),
    ]


def layers_text(step: StepTime) -> str:
    """Axis by axis, the layers it takes and what the step waits for."""
    rows = [["axis", "runs on", "over", "per step", "busiest", "time", "busy", "waited for"]]
    for axis in step.axes:
        first = [axis.load.traffic.axis, axis.load.runs_on]
        waited = seconds_text(axis.exposed_s)
        for load in axis.load.loads:
            share = percent_text(load.seconds / step.seconds)
            busy = [load.domain, seconds_text(load.seconds), share]
            rows.append([*first, load.layer, bytes_text(load.bytes_per_step), *busy, waited])
            first, waited = ["", ""], ""
    return columns(rows, right={3, 5, 6, 7})


def advice_text(found: Estimate) -> str:
    """Which algorithm to use on each axis, and what the wrong direction would cost."""
    if not found.advice:
        return ""
    tiers = found.asked.fabric.tiers
    crosses = f"crosses {tiers[0].name}" if tiers else ""
    rows = [["axis", "collective", crosses, "time", ""]]
    for item in found.advice:
        for choice in item.choices:
            axis = item.axis if choice is item.best else ""
            cut = bytes_text(choice.cut_bytes)
            remark = _remark(item, choice)
            rows.append([axis, choice.algorithm.value, cut, seconds_text(choice.seconds), remark])
    return columns(rows, right={2, 3})


def _remark(item: Advice, choice: Choice) -> str:
    remarks = []
    if choice is item.best:
        remarks.append("recommended")
    if choice.algorithm is item.used:
        remarks.append("what the cut counts")
    near = item.of(Algorithm.NEAR)
    if choice.algorithm is Algorithm.FAR and near and near.cut_bytes:
        remarks.append(f"the other direction: {choice.cut_bytes / near.cut_bytes:.3g} x near first")
    return ", ".join(remarks)


def _advice_line(item: Advice) -> str:
    """The recommendation, what the cut counts, and what the wrong direction would cost."""
    told = [f"{item.axis}: {_told(item.best)}"]
    used, far = item.of(item.used), item.of(Algorithm.FAR)
    if used and used is not item.best:
        told.append(f"{_told(used)}, which the cut counts")
    if far and far is not item.best and far.cut_bytes:
        told.append(_told(far))
    return "; not ".join(told)


def _told(choice: Choice) -> str:
    cut = bytes_text(choice.cut_bytes) if choice.cut_bytes else "nothing"
    crosses = "cross" if choice.cut_bytes else "crosses"
    return f"{choice.algorithm.value} ({cut} {crosses}, {seconds_text(choice.seconds)})"


def assumptions_text(found: Estimate, assumed: Assumptions) -> str:
    """Where the seconds of compute come from."""
    step = found.placed
    if assumed.compute_s is not None:
        return f"compute {seconds_text(step.compute_s)} a step, as given"
    if not step.flops:
        return (
            "no model: compute is not known, so nothing hides behind it"
            " (--compute-seconds says how long it takes)"
        )
    ranks = found.asked.request.parallelism.world_size
    share = percent_text(assumed.achieved_tflops / assumed.peak_tflops)
    return (
        f"compute {seconds_text(step.compute_s)}: {step.flops / ranks / 1e12:,.0f} TFLOP a GPU at"
        f" {assumed.achieved_tflops:.0f} TFLOP/s while kernels run ({share} of"
        f" {assumed.peak_tflops:g})"
    )


def bubble_text(step: StepTime) -> str:
    """A word on pipelines that idle for long; empty for others."""
    if step.bubble_s <= LONG_BUBBLE * step.compute_s:
        return ""
    share = percent_text(step.bubble_s / step.compute_s)
    return (
        f"note: the pipeline idles for {share} of compute; batch.virtual_stages (interleaving)"
        " or more micro-batches shorten that"
    )


def section_text(found: Estimate, assumed: Assumptions) -> str:
    """The estimate of one fabric, as it stands below a placement."""
    parts = [
        f"a step: {assumptions_text(found, assumed)}",
        ways_text([found]),
        layers_text(found.placed),
        "\n".join(_advice_line(item) for item in found.advice),
        bubble_text(found.placed),
    ]
    return "\n\n".join(part for part in parts if part)
