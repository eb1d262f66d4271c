"""`muster hall`: what the power of a hall feeds, and how fast a job trains there."""

from __future__ import annotations

import math
import sys
from dataclasses import fields
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement import BadInput
from placement.fabric.gpus import LEAST_POWER_SHARE
from scheduler.cli.calls import AnswerFormat, Output, formatted
from scheduler.cli.parameters import FabricName, JobPath
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement.fabric.tree import Fabric
    from scheduler.cli.offline.hall_plan import HallChoice, HallQuestion

WATTS_STEP = 100.0  # between the limits that are compared where none is given


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("hall")(hall_command)


def hall_command(
    job: JobPath,
    fabric: FabricName,
    mw: Annotated[
        float | None,
        typer.Option(
            help="MW of the hall; a regular fabric is made as large as that feeds. (default: the"
            " caps of the fabric file)"
        ),
    ] = None,
    rack_kw: Annotated[
        list[float] | None,
        typer.Option(
            help="With --mw: kW of a rack, which holds as many hosts as that feeds; may be repeated"
            " to compare. (default: racks as the fabric file has them)"
        ),
    ] = None,
    host_kw: Annotated[
        float | None,
        typer.Option(
            help="With --mw: kW of a host at most. (default: 1.82 times its GPUs, as a DGX H100)"
        ),
    ] = None,
    watts: Annotated[
        list[float] | None,
        typer.Option(
            help="Power limit of a GPU; may be repeated to compare. (default: none, and each 100 W"
            " less, down to half)"
        ),
    ] = None,
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Compare ways to use the power of a hall: how many racks and hosts, and how fast a job trains.

    For each kind of rack and each power limit of GPUs: the hosts that run at once, what holds
    others back, the step of the job there, the tokens that the whole hall trains on in a second,
    and the narrowest uplinks that lengthen no step by more than 1 %. docs/fabric.md says what a
    limit costs in speed.
    """
    from scheduler.cli.offline.hall_plan import HallQuestion, hall_choice
    from scheduler.files import inputs

    file, network = inputs.read_job(str(job)), inputs.load_fabric(fabric)
    request = file.spec.request
    if request.model is None or request.batch is None:
        message = "is needed: the step follows from the work of its GPUs"
        raise file.document.error(("model" if request.model is None else "batch", message))
    if request.compute_s is not None:
        message = "conflicts with a power limit: it is the compute of GPUs without one"
        raise file.document.error(("compute_time_s", message))
    _check(network, mw, rack_kw, host_kw, watts)
    hall_kw = None if mw is None else mw * 1000
    question = HallQuestion(request, network, hall_kw, host_kw)
    limits = watts or _usual_limits(network)
    try:
        racks: list[float | None] = [*rack_kw] if rack_kw else [None]
        choices = [hall_choice(question, *each) for each in product(racks, limits)]
    except BadInput as error:
        if error.field.startswith("--"):
            raise InputError(Problem(error.field, error.message)) from None
        if error.field in network.spec:
            raise InputError(Problem(error.field, error.message, fabric)) from None
        raise file.document.error((error.field, error.message)) from None
    if output is AnswerFormat.TABLE:
        text = _text(file.spec.name, question, choices)
    else:
        body = {"job": file.spec.name, "fabric": network.name, "hall_kw": hall_kw}
        text = formatted({**body, "choices": [*map(_mapping, choices)]}, output)
    sys.stdout.write(text + "\n")


def _check(
    fabric: Fabric,
    mw: float | None,
    rack_kw: list[float] | None,
    host_kw: float | None,
    watts: list[float] | None,
) -> None:
    """Raises: InputError naming the option."""
    given = [("--mw", mw), ("--host-kw", host_kw)]
    given += [("--rack-kw", value) for value in rack_kw or ()]
    given += [("--watts", value) for value in watts or ()]
    for option, value in given:
        if value is not None and not 0 < value < math.inf:
            raise InputError(Problem(option, f"must be a positive number, not {value:g}"))
    for option, value in given:
        if option != "--watts" and value is not None and fabric.power is not None:
            message = f"conflicts with power_caps_kw of {fabric.name}"
            raise InputError(Problem(option, message))
        if option in ("--rack-kw", "--host-kw") and value is not None and mw is None:
            raise InputError(Problem(option, "needs --mw"))
    if mw is not None and host_kw is None and fabric.has_scale_up_tier:
        message = (
            "is needed: hosts in racks of NVLink draw other shares of their GPUs than a DGX H100"
        )
        raise InputError(Problem("--host-kw", message))
    if mw is None and fabric.power is None:
        message = f"is needed: {fabric.name} states no power_caps_kw"
        raise InputError(Problem("--mw", message))
    most_watts = max(gpu.watts for gpu in fabric.by_host.kinds)
    for gpu in fabric.by_host.kinds:
        if not gpu.watts:
            message = f"nobody states what a {gpu.name} draws: `gpus` of the fabric file may"
            raise InputError(Problem("--fabric", message))
        for value in watts or ():
            if not (least := LEAST_POWER_SHARE * gpu.watts) <= value <= most_watts:
                message = f"must be {least:g} to {most_watts:g} for {gpu.name}"
                raise InputError(Problem("--watts", f"{message}, not {value:g}"))


def _usual_limits(fabric: Fabric) -> list[float]:
    """Return what the hungriest GPU draws, and each 100 W less, down to half of that."""
    most = max(gpu.watts for gpu in fabric.by_host.kinds)
    count = int((1 - LEAST_POWER_SHARE) * most / WATTS_STEP)
    return [most - WATTS_STEP * number for number in range(count + 1)]


def _mapping(choice: HallChoice) -> dict[str, Any]:
    renamed = {
        "watts": "gpu_watts",
        "step_s": "step_seconds",
        "tokens_per_s": "tokens_per_second",
    }
    body = {renamed.get(f.name, f.name): getattr(choice, f.name) for f in fields(choice)}
    said = {key: body[key] or None for key in ("held_back_by", "reason")}
    return {**body, **said, "gpus": {gpu.name: dict(gpu.tflops) for gpu in choice.gpus}}


def _text(name: str, question: HallQuestion, choices: Sequence[HallChoice]) -> str:
    from scheduler.cli.offline.hall_plan import MOST_RATIO
    from scheduler.cli.render.text import gbps_text, seconds_text, table

    fabric = question.fabric
    tier = fabric.tiers[-1].name if fabric.tiers else "rack"
    uplink = f"{fabric.tiers[0].name} uplinks that suffice" if fabric.tiers else ""
    is_rack = any(choice.rack_kw for choice in choices)
    head = [*([f"{tier} kW"] if is_rack else []), "GPU W", "host kW", f"{tier}s", "hosts", "kW"]
    rows = []
    first = next((each.tokens_per_s for each in choices if each.tokens_per_s), None)
    for choice in choices:
        rack = [f"{choice.rack_kw:g}"] if choice.rack_kw else []
        drawn = [f"{choice.watts:g}", f"{choice.host_kw:.4g}", f"{choice.racks:,}"]
        row = [*rack, *drawn, f"{choice.hosts:,}", f"{choice.kw:,.0f}", choice.held_back_by or "-"]
        if choice.step_s is None or choice.tokens_per_s is None or first is None:
            rows.append([*row, "-", "-", "-", "", choice.reason])
            continue
        change = f"{100 * (choice.tokens_per_s / first - 1):+.1f} %"
        speed = [seconds_text(choice.step_s), f"{choice.gangs:.3g}", f"{choice.tokens_per_s:,.0f}"]
        needs = "any: no gang crosses one"
        if choice.uplink_ratio is not None and choice.uplink_gbps is not None:
            narrower = " or less" if choice.uplink_ratio == MOST_RATIO else ""
            needs = f"{choice.uplink_ratio:g}:1, {gbps_text(choice.uplink_gbps)}{narrower}"
        rows.append([*row, *speed, change if choice.tokens_per_s != first else "", needs])
    shown = table([*head, "held back by", "step", "gangs", "tokens/s", "", uplink], rows)
    parts = [_head_text(name, question), shown]
    return "\n\n".join([*parts, _speed_text(fabric, choices), _verdict_text(choices)])


def _head_text(name: str, question: HallQuestion) -> str:
    if question.hall_kw is None:
        return f"{name} on {question.fabric.name}, within the power caps of its file"
    assumed = "" if question.host_kw else "; hosts draw 1.82 times their GPUs, as a DGX H100 does"
    hall = f"{question.hall_kw / 1000:g} MW{assumed}"
    return f"{name} on {question.fabric.name}, in a hall of {hall}"


def _speed_text(fabric: Fabric, choices: Sequence[HallChoice]) -> str:
    """Say what each limit makes of the GPUs, and where that comes from."""
    said = dict[str, None]()
    for choice in choices:
        for gpu, whole in zip(choice.gpus, fabric.by_host.kinds, strict=True):
            precision, peak = whole.tflops[0]
            share = dict(gpu.tflops)[precision] / peak
            if gpu is whole or share == 1:
                text = "as the fabric has it"
            elif gpu.name == whole.name:
                text = f"at {share:.2f} of its peak: its clock falls as the cube root of the power"
            else:
                memory = gpu.memory_gb_per_s / whole.memory_gb_per_s
                text = f"with {share:.2f} of the peak and {memory:.2f} of the memory bandwidth"
            said[f"{gpu.watts:g} W: {gpu.name} {text}"] = None
    return "\n".join(said)


def _verdict_text(choices: Sequence[HallChoice]) -> str:
    """Name the choice that trains on most tokens."""
    timed = [each for each in choices if each.tokens_per_s]
    if not timed:
        return "the job fits in none of these"
    best = max(timed, key=lambda each: each.tokens_per_s or 0.0)
    rack = f" in racks of {best.rack_kw:g} kW" if best.rack_kw else ""
    return f"most tokens: GPUs of {best.watts:g} W{rack}, {best.hosts:,} hosts"
