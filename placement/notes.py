"""What whoever asked for a placement should know, in sentences."""

from __future__ import annotations

from functools import lru_cache

from muster.structs import replace
from placement.fabric.tree import Fabric
from placement.spares.holding import Holding
from placement.workload.framework_limits import framework_notes
from placement.workload.memory import memory_note
from placement.workload.request import Request
from placement.workload.traffic import axis_traffic
from placement.workload.training import AS_LLAMA3


@lru_cache(maxsize=4096)
def request_notes(fabric: Fabric, request: Request) -> tuple[str, ...]:
    """Return remarks on the job itself: axes that send nothing, memory that would not do, keys
    without effect."""
    if request.roles:
        named = [(role.name, _notes(fabric, role.request)) for role in request.roles]
        return tuple(f"{name}: {note}" for name, notes in named for note in notes)
    return (*_silent_axes(fabric, request), *_notes(fabric, request))


def _notes(fabric: Fabric, request: Request) -> tuple[str, ...]:
    about = (
        *(_memory_note(fabric, request), _idle_training(request)),
        *(*framework_notes(request), _uneven_stages(request)),
    )
    return tuple(note for note in about if note)


def _memory_note(fabric: Fabric, request: Request) -> str | None:
    """Note how memory fits the GPU that has the least, where the fabric names its GPUs."""
    hardware = fabric.by_host
    if hardware.is_kind_assumed or not hardware.kinds:
        return memory_note(request)
    least = min(hardware.kinds, key=lambda gpu: gpu.memory_gb)
    return memory_note(request, least.memory_gb, least.name)


def _uneven_stages(request: Request) -> str | None:
    """Stages of unlike depth are as slow as the deepest; the formulas take the average.

    Layers divide over the stages by themselves, or with the embedding and the output head
    counted as one layer each (Llama 3, section 3.3.2).
    """
    model, pp = request.model, request.parallelism.pp
    if model is None or request.batch is None:
        return None
    chunks = pp * request.batch.virtual_stages
    if chunks == 1 or 0 in (model.layers % chunks, (model.layers + 2) % chunks):
        return None
    interleaved = f" of {request.batch.virtual_stages} chunks each" if chunks > pp else ""
    return (
        f"{model.layers} layers do not divide over {pp} stages{interleaved}:"
        " bytes and times are those of an average stage"
    )


def _idle_training(request: Request) -> str | None:
    """`training` speaks of a model; without one only the pattern of cp is left of it."""
    used = replace(AS_LLAMA3, context_parallel=request.training.context_parallel)
    if request.model is not None or request.training == used:
        return None
    return "training is not used: without a model neither bytes nor memory follow from it"


def _silent_axes(fabric: Fabric, request: Request) -> list[str]:
    """Axes that span hosts and carry no bytes: most likely something was left out."""
    if request.is_on_cpus:
        return []
    return [
        f"axis {axis.axis} spans hosts and has no traffic: it was placed as if silent"
        for axis in axis_traffic(request)
        if not axis.edge_bytes and axis.stride * axis.size > fabric.gpus_per_host
    ]


def spare_notes(fabric: Fabric, held: Holding, at: int = 0) -> list[str]:
    """Return remarks on spares: fewer than wished for, or far from the gang, outside its domains of
    the tier `at`."""
    notes = []
    if len(held.spares) < held.wished:
        notes.append(
            f"{len(held.spares)} of {held.wished} spares held: the job may take no other free hosts"
        )
    if held.elsewhere:
        spares = "1 spare is" if held.elsewhere == 1 else f"{held.elsewhere} spares are"
        tier = fabric.tiers[at].name
        notes.append(f"{spares} in {tier}s that the gang does not use")
    return notes
