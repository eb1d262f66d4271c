"""What a GPU of a placed job needs, and whether those of its hosts have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement.workload.memory import GIB, USABLE_SHARE, fits, memory

if TYPE_CHECKING:
    from placement.fabric.gpus import Gpu
    from placement.fabric.tree import Fabric
    from placement.workload.memory import MemoryUse
    from placement.workload.request import Placement, Request


def _on_smallest(
    fabric: Fabric, request: Request, answer: Placement
) -> tuple[MemoryUse, Gpu] | None:
    use, kinds = memory(request), fabric.by_host.kinds_of(answer.hosts)
    return (use, min(kinds, key=lambda gpu: gpu.memory_gb)) if use and kinds else None


def to_text(fabric: Fabric, request: Request, answer: Placement) -> str:
    """Return a line; empty without a model."""
    if (result := _on_smallest(fabric, request, answer)) is None:
        return ""
    use, gpu = result
    size = f"{gpu.memory_gb:g} GiB of {gpu.name}"
    if fits(use, gpu.memory_gb):
        verdict = f"fits the {size}"
    else:
        verdict = f"DOES NOT FIT: at most {100 * USABLE_SHARE:g} % of the {size}"
    return f"memory on {fabric.name}: {use}; {verdict}"


def to_mapping(fabric: Fabric, request: Request, answer: Placement) -> dict[str, Any] | None:
    """In GiB; None without a model."""
    if (result := _on_smallest(fabric, request, answer)) is None:
        return None
    use, gpu = result
    parts = ("parameters", "gradients", "optimizer", "activations", "working", "fragmentation")
    return {
        "gib": round(use.total / GIB, 3),
        "stage": use.stage,
        "parts_gib": {part: round(getattr(use, part) / GIB, 3) for part in (*parts, "context")},
        "gpu": gpu.name,
        "gpu_gib": gpu.memory_gb,
        "fits": fits(use, gpu.memory_gb),
    }
