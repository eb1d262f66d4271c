"""A placement in seconds of step time, and its JSON; tables are in step_tables.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from muster.structs import struct
from network.flows import flows_of
from network.routing import Congestion, Routing, route
from network.step_simulation import simulate_step
from network.wiring import links
from placement import consecutive
from placement.fabric.constraints import labelled
from placement.fabric.hostset import has, to_mask
from placement.fabric.links import islands
from placement.fabric.tree import Fabric, Ints
from placement.objective.step_time import Assumptions, StepTime, compute_by_part, step_time
from placement.workload.request import Placement
from scheduler.core.policies.storage_use import StorageCost, storage_cost

if TYPE_CHECKING:
    from scheduler.cli.render.place.question import Question

SEED = 0  # of the random placement and of the hashes of flows
MUSTER, FEWEST, BY_NAME, AT_RANDOM = "muster", "fewest domains", "by name", "at random"


@struct(frozen=True, slots=True)
class PowerChoice:
    """The step of muster's placement with GPUs held to `watts`, and with no limit. `is_held`: power
    caps leave it no room otherwise."""

    watts: int
    is_held: bool
    held_s: float
    free_s: float


@struct(frozen=True, slots=True)
class Estimate:
    """Steps of a job on one fabric, as muster places it and as others would.

    `steps`: (way, step), muster's first, and what routing makes of the flows of each, None when
    they are spread perfectly. `simulated`: the seconds of each, played message by message; none
    unless asked for. `compute`: seconds of its parts, on the `gpus` of muster's placement; empty
    where something else says how long it is. `power`: of a job whose GPUs may be held to fewer
    watts, else None.
    """

    question: Question
    steps: tuple[tuple[str, StepTime], ...]
    routed: tuple[Congestion | None, ...]
    compute: dict[str, float]
    simulated: tuple[float, ...] = ()
    gpus: tuple[str, ...] = ()
    power: PowerChoice | None = None

    @property
    def gpu_text(self) -> str:
        """The kinds of GPU that the job gets, as `H100 in bf16`."""
        by_host, request = self.question.fabric.by_host, self.question.request
        names = ", ".join(self.gpus)
        said = " (assumed: the fabric file names no GPU)" if by_host.is_kind_assumed else ""
        return f"{names}{said} in {request.model.dtype}" if request.model else f"{names}{said}"

    @property
    def placed(self) -> StepTime:
        return self.steps[0][1]

    @property
    def storage(self) -> StorageCost | None:
        """Cost of the storage to muster's placement; None where the fabric file states none."""
        if (use := self.question.storage_use) is None:
            return None
        if self.placed.compute_s:
            use = use.at_step(self.placed.seconds)
        return storage_cost(use, self.question.beside)


@struct(frozen=True, slots=True)
class NetworkChoice:
    """How flows are routed; None spreads them perfectly. `failed`: what is down. `is_simulated`:
    steps are played as well."""

    routing: Routing | None = None
    failed: tuple[str, ...] = ()
    is_simulated: bool = False


USUAL_NETWORK = NetworkChoice()


def estimate(
    question: Question,
    answer: Placement,
    assumed: Assumptions,
    network: NetworkChoice = USUAL_NETWORK,
) -> Estimate | None:
    """Estimate the steps of a job; None when no two ranks ever talk, or no step takes time.

    Raises: BadInput on a switch or cable that the fabric does not have.
    """
    fabric, ways = question.fabric, ways_to_place(question, answer, SEED)
    request = question.request
    routed = tuple(_routed(question, hosts, network) for hosts in ways.values())
    steps = tuple(
        (way, step_time(fabric, request, hosts, assumed, flows))
        for (way, hosts), flows in zip(ways.items(), routed, strict=True)
    )
    if not steps[0][1].axes or not steps[0][1].seconds:
        return None
    compute = _compute(question, answer, assumed)
    simulated = tuple(
        simulate_step(fabric, request, hosts, step.compute_s).seconds
        for hosts, (_, step) in zip(ways.values(), steps, strict=True)
        if network.is_simulated
    )
    gpus = tuple(gpu.name for gpu in question.fabric.by_host.kinds_of(answer.hosts))
    power = None
    if watts := question.power_cap_w:
        held_s, free_s = (
            step_time(
                fabric, request.with_power_limit(each), answer.hosts, assumed, routed[0]
            ).seconds
            for each in (watts, 0)
        )
        power = PowerChoice(watts, bool(request.gpu_watts), held_s, free_s)
    return Estimate(question, steps, routed, compute, simulated, gpus, power)


def ways_to_place(question: Question, answer: Placement, seed: int) -> dict[str, Sequence[int]]:
    """Return the hosts of each way to place the gang, muster's first.

    The other ways take the same number of the free hosts that the job may have, on the same side
    of uplinks that are down: the fewest domains, as schedulers do that count slots, the first by
    name, both in consecutive ranks, and the seed's at random.
    """
    fabric, gang = question.fabric, len(answer.hosts)
    side = next(i for i in islands(fabric) if has(i, answer.hosts[0]))
    fit = labelled(fabric, question.request.where, question.free & side)
    free = np.flatnonzero(to_mask(fit, fabric.host_count)).astype(np.int64)
    return {
        MUSTER: answer.hosts,
        FEWEST: consecutive(fabric)(free, gang).tolist(),
        BY_NAME: by_name(fabric, free, gang),
        AT_RANDOM: at_random(free, gang, seed),
    }


def _compute(question: Question, answer: Placement, assumed: Assumptions) -> dict[str, float]:
    """Seconds of the parts of compute on the slowest kind of GPU of the placement."""
    request = question.request
    stated = (assumed.achieved_tflops, request.compute_s)
    if any(each is not None for each in stated):
        return {}
    kinds = question.fabric.by_host.kinds_of(answer.hosts)
    by_kind = (compute_by_part(request, gpu, assumed) for gpu in kinds)
    return max(by_kind, key=lambda parts: sum(parts.values()))


def by_name(fabric: Fabric, free: Ints, gang: int) -> list[int]:
    """Return the first hosts by name, as launchers use them for consecutive ranks."""
    return sorted(free.tolist(), key=fabric.hosts.__getitem__)[:gang]


def at_random(free: Ints, gang: int, seed: int) -> list[int]:
    """Return random hosts in random order."""
    return [int(host) for host in np.random.default_rng(seed).permutation(free)[:gang]]


def _routed(question: Question, hosts: Sequence[int], network: NetworkChoice) -> Congestion | None:
    if network.routing is None:
        return None
    flows = flows_of(question.fabric, question.request, hosts)
    if not len(flows):
        return None
    return route(links(question.fabric), flows, network.routing, SEED, network.failed)


def cut_bytes(fabric: Fabric, step: StepTime) -> int:
    """Return the bytes of a step between outermost domains."""
    uplink = f"{fabric.tiers[0].name} uplink" if fabric.tiers else ""
    loads = (load for axis in step.axes for load in axis.load.loads)
    return sum(load.bytes_per_step for load in loads if load.layer == uplink)


def to_mapping(estimated: Estimate) -> dict[str, Any]:
    """Return the estimate as JSON values: `placements` by way, and what muster's costs beside."""
    simulated = estimated.simulated or (None,) * len(estimated.steps)
    return {
        "placements": {
            way.replace(" ", "_"): {
                "cut_bytes_per_step": cut_bytes(estimated.question.fabric, step),
                **_step(step, routed),
                "simulated_seconds": seconds,
            }
            for (way, step), routed, seconds in zip(
                estimated.steps, estimated.routed, simulated, strict=True
            )
        },
        "gpus": {
            "kinds": list(estimated.gpus),
            "assumed": estimated.question.fabric.by_host.is_kind_assumed,
        },
        "compute_seconds": estimated.compute or None,
        **({"storage": _storage(estimated.storage)} if estimated.storage else {}),
        **({"power": _power(estimated.power)} if estimated.power else {}),
    }


def _power(power: PowerChoice) -> dict[str, Any]:
    return {
        "gpu_watts": power.watts,
        "is_held": power.is_held,
        "held_step_seconds": power.held_s,
        "free_step_seconds": power.free_s,
    }


def _storage(cost: StorageCost) -> dict[str, Any]:
    return {
        "other_gangs": cost.gangs,
        "dataset_store": cost.use.read_store.name or None,
        "checkpoint_store": cost.use.write_store.name or None,
        "read_gb_per_s": cost.use.read_gb_per_s,
        "left_gb_per_s": cost.left_gb_per_s,
        "read_limit": cost.read_limit or None,
        "readers": cost.use.readers_needed,
        "read_exposed_seconds": cost.read_exposed_s,
        "checkpoint_seconds": cost.write_s,
        "checkpoint_seconds_alone": cost.alone_s,
        "checkpoint_limit": cost.write_limit or None,
        "checkpoint_exposed_seconds": cost.write_exposed_s,
        "kept_tb": cost.stored_tb,
        "capacity_tb": cost.capacity_tb or None,
    }


def _step(step: StepTime, routed: Congestion | None) -> dict[str, Any]:
    """`step_seconds` is what communication takes by itself when compute is not known."""
    return {
        "step_seconds": step.seconds,
        "likely_seconds": list(step.likely_s) if step.likely_s else None,
        "compute_seconds": step.compute_s or None,
        "bubble_seconds": step.bubble_s,
        "exposed_seconds": step.exposed_s,
        "busiest_link": {"layer": step.busiest_link, "seconds": step.busiest_link_s},
        "model_flops": step.flops or None,
        "mfu": step.mfu,
        "routing": _congestion(routed) if routed else None,
        "axes": {
            axis.load.traffic.axis: {
                "runs_on": axis.load.runs_on,
                "bytes_per_gpu": round(axis.load.bytes_per_gpu),
                "seconds": axis.seconds,
                "exposed_seconds": axis.exposed_s,
                "latency_seconds": axis.load.latency_s,
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


def _congestion(congestion: Congestion) -> dict[str, Any]:
    """`ideal_seconds`: the same flows spread perfectly over a whole network."""
    return {
        "routing": str(congestion.routing),
        "seconds": congestion.seconds,
        "ideal_seconds": congestion.ideal_s,
        "slowdown": congestion.slowdown,
        "busiest": congestion.busiest.name,
        "axes": {
            axis.axis: {
                "seconds": axis.seconds,
                "ideal_seconds": axis.ideal_s,
                "slowdown": axis.slowdown,
                "busiest": axis.busiest.name,
            }
            for axis in congestion.axes
        },
        "layers": [
            {
                "layer": layer.layer,
                "direction": layer.direction,
                "bytes_per_step": round(layer.bytes),
                "busiest": layer.busiest.name,
                "seconds": layer.busiest.seconds,
                "max_to_mean": layer.mmr,
            }
            for layer in congestion.layers
        ],
    }
