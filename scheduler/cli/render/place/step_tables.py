"""An estimate as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from network.routing import Congestion, RoutedAxis
from placement.objective.fitted_constants import fitted_constants
from placement.objective.step_time import StepTime
from scheduler.cli.render.place.steps import MUSTER, Estimate, cut_bytes
from scheduler.cli.render.text import bytes_text, percent_text, seconds_text, table

LONG_BUBBLE = 0.25  # of compute: worth a word


def ways_text(estimates: Sequence[Estimate]) -> str:
    """Write one line for each way to place the job, fabric by fabric."""
    axes = [axis.load.traffic.axis for axis in estimates[0].placed.axes]
    is_known = estimates[0].placed.compute_s > 0
    head = ["fabric", "placed", "step" if is_known else "communication", "", "cut", "MFU"]
    simulated = ["simulated"] if estimates[0].simulated else []
    rows = []
    for estimate in estimates:
        played = estimate.simulated or (None,) * len(estimate.steps)
        for (way, step), simulated_s in zip(estimate.steps, played, strict=True):
            fabric = estimate.question.fabric.name if way == MUSTER else ""
            sent = bytes_text(cut_bytes(estimate.question.fabric, step))
            row = [fabric, way, *_layout_cells(step, estimate.placed, sent)]
            rows.append(row if simulated_s is None else [*row, seconds_text(simulated_s)])
    return table([*head, "bubble", *axes, "busiest link", "", *simulated], rows)


def verdict_text(estimates: Sequence[Estimate]) -> str:
    """Say which fabric is the fastest, and by how much; or that the model cannot tell."""
    ranked = sorted(estimates, key=lambda each: each.placed.seconds)
    fastest, slowest = ranked[0].placed.seconds, ranked[-1].placed.seconds
    share = slowest / fastest - 1 if fastest else 0.0
    names = [
        f"{each.question.fabric.name}{_under_text(each)} {seconds_text(each.placed.seconds)}"
        for each in ranked
    ]
    listed = f"a step on {', '.join(names)}"
    if share <= fitted_constants().resolution:
        return f"equivalent within {100 * share:.1f} %: {listed}"
    return f"{ranked[0].question.fabric.name} is faster by up to {100 * share:.1f} %: {listed}"


def _under_text(estimate: Estimate) -> str:
    routed = estimate.routed[0]
    return f" under {routed.routing}" if routed else ""


def _layout_cells(step: StepTime, best: StepTime, sent: str) -> list[str]:
    change = step.seconds / best.seconds - 1 if best.seconds else 0.0
    return [
        seconds_text(step.seconds),
        "" if step is best else f"{100 * change:+.1f} %",
        sent,
        percent_text(step.mfu) if step.mfu is not None else "",
        seconds_text(step.bubble_s),
        *(seconds_text(axis.exposed_s) for axis in step.axes),
        step.busiest_link,
        seconds_text(step.busiest_link_s),
    ]


def layers_text(step: StepTime) -> str:
    """Write for each axis which layers of the network it takes, and what the step waits for."""
    rows = []
    for axis in step.axes:
        first = [axis.load.traffic.axis, axis.load.runs_on]
        waited = seconds_text(axis.exposed_s)
        for load in axis.load.loads:
            share = percent_text(load.seconds / step.seconds)
            busy = [load.domain, seconds_text(load.seconds), share]
            rows.append([*first, load.layer, bytes_text(load.bytes_per_step), *busy, waited])
            first, waited = ["", ""], ""
        if late_s := axis.load.latency_s:
            share = percent_text(late_s / step.seconds)
            rows.append([*first, "latency", "", "", seconds_text(late_s), share, waited])
    head = ["axis", "runs on", "over", "per step", "busiest", "time", "busy", "exposed"]
    return table(head, rows)


def routing_text(congestion: Congestion) -> str:
    """Show the slowdown of each axis by routing, and the fullest cable of each layer."""
    flows = [_flow_cells(axis.axis, axis) for axis in congestion.axes]
    flows.append(_flow_cells("together", congestion))
    cables = [
        [
            layer.layer,
            layer.direction,
            bytes_text(layer.bytes),
            layer.busiest.name,
            seconds_text(layer.busiest.seconds),
            f"{layer.mmr:.2f}",
        ]
        for layer in congestion.layers
    ]
    heads = ["layer", "", "per step", "fullest", "time", "max / mean"]
    slowed = table([str(congestion.routing), "busiest cable", "time", "spread", ""], flows)
    return f"{slowed}\n\n{table(heads, cables)}"


def _flow_cells(name: str, each: Congestion | RoutedAxis) -> list[str]:
    spent = [seconds_text(each.seconds), seconds_text(each.ideal_s)]
    return [name, each.busiest.name, *spent, f"{each.slowdown:.2f} x"]


def assumptions_text(estimate: Estimate) -> str:
    """Say where the seconds of compute come from."""
    step = estimate.placed
    if estimate.question.request.compute_s is not None:
        return f"compute {seconds_text(step.compute_s)} a step, as given"
    if estimate.question.request.roles:
        compute = f"compute {seconds_text(step.compute_s)} a step in the slowest role"
        return f"{compute}; then all wait for what roles send each other"
    if not step.flops:
        return (
            "no model: compute is not known, so nothing hides behind it"
            " (`compute_time_s` in the job file says how long it lasts)"
        )
    ranks = estimate.question.request.parallelism.world_size
    flops = step.flops / ranks
    share = percent_text(flops * ranks / (step.peak_flops * step.compute_s))
    rate = f"{_number(flops / step.compute_s / 1e12)} TFLOP/s while kernels run"
    peak = f"{step.peak_flops / ranks / 1e12:g}"
    return (
        f"compute {seconds_text(step.compute_s)} on {estimate.gpu_text}:"
        f" {flops / 1e12:,.0f} TFLOP a GPU at {rate} ({share} of {peak})"
        f"{_parts_text(estimate)}{_interval_text(step)}"
    )


def _parts_text(estimate: Estimate) -> str:
    """The parts of compute, the longest first."""
    parts = sorted(estimate.compute.items(), key=lambda part: -part[1])
    said = ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in parts)
    return f"\n  {said}" if said else ""


def _interval_text(step: StepTime) -> str:
    """`\n24.9 s, 21 to 29 s in 8 of 10 such runs`."""
    if step.likely_s is None:
        return ""
    low, high = (seconds_text(seconds) for seconds in step.likely_s)
    return f"\n{seconds_text(step.seconds)} a step, {low} to {high} in 8 of 10 such runs"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def bubble_text(step: StepTime) -> str:
    """Warn of pipelines that idle for long; "" for others."""
    if step.bubble_s <= LONG_BUBBLE * step.compute_s:
        return ""
    share = percent_text(step.bubble_s / step.compute_s)
    return (
        f"note: the pipeline idles for {share} of compute; batch.virtual_stages (interleaving)"
        " or more micro-batches shorten that"
    )


def storage_text(estimate: Estimate) -> str:
    """Say what the storage of the fabric costs a step; empty where nothing is known."""
    cost = estimate.storage
    if cost is None or not cost.text:
        return ""
    step_s = estimate.placed.seconds + cost.exposed_s
    longer = f"\na step with that: {seconds_text(step_s)}" if cost.exposed_s else ""
    warning = "warning: " if cost.is_full else ""
    return f"{warning}storage: {cost.text}{longer}"


def power_text(estimate: Estimate) -> str:
    """Say what GPUs cost that are held to fewer watts; empty for jobs whose GPUs may not be."""
    if (power := estimate.power) is None:
        return ""
    held, free = seconds_text(power.held_s), seconds_text(power.free_s)
    change = f"{100 * (power.held_s / power.free_s - 1):+.1f} %"
    if power.is_held:
        why = f"power caps leave it no room otherwise: each GPU is held to {power.watts} W"
        return f"power: {why}, and a step takes {held}; {free} with no limit ({change})"
    return f"power: held to {power.watts} W, where power is short, a step takes {held} ({change})"


def step_parts(estimate: Estimate) -> list[str]:
    """Say what a placement costs a step: layers, routing, idle time, storage, power;
    "" for each that there is nothing to say of."""
    routed = estimate.routed[0]
    return [
        layers_text(estimate.placed),
        routing_text(routed) if routed else "",
        bubble_text(estimate.placed),
        storage_text(estimate),
        power_text(estimate),
    ]


def section_text(estimate: Estimate) -> str:
    """Write the estimate of one fabric, as it stands below a placement."""
    head = [f"a step: {assumptions_text(estimate)}", ways_text([estimate])]
    parts = [*head, *step_parts(estimate)]
    return "\n\n".join(part for part in parts if part)
