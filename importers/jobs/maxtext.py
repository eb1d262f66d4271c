"""MaxText's YAML: axes inside (ici) and between (dcn) slices, a named model.

Keys and defaults: src/MaxText/configs/base.yml. A mesh axis has the product of both degrees; data,
fsdp and their transposes are dp, which shards parameters where fsdp is larger than 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Final

from importers.jobs.draft import ORDER, Draft, Origin, TrainerSettings, flat_settings, put_sharding
from importers.jobs.shapes import put_shape
from scheduler.files.yaml12 import parse

_AXES: Final = {
    "data": "dp",
    "fsdp": "dp",
    "fsdp_transpose": "dp",
    "tensor": "tp",
    "tensor_sequence": "tp",
    "context": "cp",
    "sequence": "cp",
    "expert": "ep",
    "pipeline": "pp",
}
_LEFT_TO_PROGRAM: Final = ("base_config", "run_name", "hardware", "steps", "dtype")


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a configuration of MaxText. Raises: InputError."""
    document = parse(text, draft.source)
    settings = flat_settings(draft, document.mapping(), document.lines)
    degrees = {  # by key, with its axis; 0: what is left
        f"{level}_{mesh}_parallelism": (mesh, axis)
        for mesh, axis in _AXES.items()
        for level in ("ici", "dcn")
    }
    sizes, shards, rest = {"tp": 1, "cp": 1, "ep": 1, "pp": 1, "dp": 1}, 1, ""
    for key, (mesh, axis) in degrees.items():
        degree = settings.number(key, default=0 if settings.get(key) == -1 else 1)
        rest = rest if degree else key
        sizes[axis] *= degree or 1
        shards *= (degree or 1) if mesh.startswith("fsdp") else 1
    draft.raise_faults()
    ranks = prod(sizes.values())
    if rest and not gpus:
        draft.fault(Origin("--gpus"), f"is needed: {rest} is -1, whatever is left")
    if gpus and (gpus % ranks or (not rest and gpus != ranks)):
        draft.fault(Origin("--gpus"), f"the axes make {ranks} ranks, not {gpus}")
    draft.raise_faults()
    if rest:
        left, (mesh, axis) = gpus // ranks, degrees[rest]
        sizes[axis] *= left
        shards *= left if mesh.startswith("fsdp") else 1
        ranks = gpus
    sizes = draft.with_given_degrees(sizes)
    for axis, size in sizes.items():
        draft.put(f"parallelism.{axis}", size)
    draft.put("parallelism.order", ORDER)
    _model(settings)
    each = settings.get("per_device_batch_size", default=12)
    steps = settings.number("gradient_accumulation_steps")
    whole = float(each) * ranks * steps if isinstance(each, int | float) else 0.0
    if not whole or not whole.is_integer():
        message = f"makes {whole:g} sequences a step"
        draft.fault(settings.origin("per_device_batch_size"), message)
        draft.raise_faults()
    origin = settings.origin("per_device_batch_size")
    draft.put("batch.global_sequences", int(whole), origin)
    micro = int(whole) // (sizes["dp"] * sizes["ep"] * steps)
    draft.put("batch.micro_sequences", max(1, micro))
    group = shards if 1 < shards < sizes["dp"] else 0
    put_sharding(draft, "zero3" if shards > 1 else "ddp", group=group)
    if settings.get("remat_policy", default="full") == "full":
        draft.put("training.recompute", "full", settings.origin("remat_policy"))
    settings.note_unread(_LEFT_TO_PROGRAM)


def _model(settings: TrainerSettings) -> None:
    draft = settings.draft
    name = str(settings.get("model_name", default="default"))
    match = re.fullmatch(r"(llama3)(?:\.\d)?-(\d+b)", name)
    known = f"{match[1]} {match[2].upper()}" if match else name
    put_shape(draft, known, settings.origin("model_name"), name)
    sequence = settings.number("max_target_length", default=2048)
    draft.put("model.sequence", sequence, settings.origin("max_target_length"))
    quantization = str(settings.get("quantization", default=""))
    if quantization.startswith("fp8") or quantization == "nanoo_fp8":
        draft.put("model.dtype", "fp8", settings.origin("quantization"))
    elif quantization:
        draft.note(f"not represented: quantization {quantization}")
