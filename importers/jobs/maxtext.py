"""MaxText's YAML: axes inside (ici) and between (dcn) slices, a named model.

Keys and defaults: src/MaxText/configs/base.yml. A mesh axis has the product of both degrees; data,
fsdp and their transposes are dp, which shards parameters where fsdp is larger than 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from importers.jobs.draft import Draft, Origin
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
_READ: Final = frozenset(
    {
        *("base_config", "run_name", "model_name", "hardware", "steps", "quantization"),
        *("per_device_batch_size", "max_target_length", "remat_policy", "dtype"),
        "gradient_accumulation_steps",
    }
)


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a configuration of MaxText. Raises: InputError."""
    document = parse(text, draft.source)
    values = document.mapping()

    def origin(key: str) -> Origin:
        return Origin(key, document.lines.get(key, 0))

    sizes, shards, read = {"tp": 1, "cp": 1, "ep": 1, "pp": 1, "dp": 1}, 1, set(_READ)
    rest = ""  # the axis that takes what is left
    for mesh, axis in _AXES.items():
        for level in ("ici", "dcn"):
            key = f"{level}_{mesh}_parallelism"
            read.add(key)
            degree = values.get(key, 1)
            if degree == -1:
                rest = key
            elif isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
                draft.fault(origin(key), f"must be a whole number, is {degree!r}")
            else:
                sizes[axis] *= degree
                shards *= degree if mesh.startswith("fsdp") else 1
    draft.raise_faults()
    ranks = sizes["tp"] * sizes["cp"] * sizes["ep"] * sizes["pp"] * sizes["dp"]
    if rest and not gpus:
        draft.fault(Origin("--gpus"), f"is needed: {rest} is -1, whatever is left")
    if gpus and (gpus % ranks or (not rest and gpus != ranks)):
        draft.fault(Origin("--gpus"), f"the axes make {ranks} ranks, not {gpus}")
    draft.raise_faults()
    if rest:
        left = gpus // ranks
        mesh = rest.split("_", 1)[1].removesuffix("_parallelism")
        sizes[_AXES[mesh]] *= left
        shards *= left if mesh.startswith("fsdp") else 1
        ranks = gpus
    sizes = draft.with_given_degrees(sizes)
    for axis, size in sizes.items():
        draft.put(f"parallelism.{axis}", size)
    draft.put("parallelism.order", "tp-cp-ep-dp-pp")
    _model(draft, values, origin)
    each, steps = (
        values.get("per_device_batch_size", 12),
        values.get("gradient_accumulation_steps", 1),
    )
    whole = float(each) * ranks * int(steps) if isinstance(each, int | float) else 0.0
    if not whole or not whole.is_integer():
        draft.fault(origin("per_device_batch_size"), f"makes {whole:g} sequences a step")
        draft.raise_faults()
    replicas = sizes["dp"] * sizes["ep"]
    draft.put("batch.global_sequences", int(whole), origin("per_device_batch_size"))
    draft.put("batch.micro_sequences", max(1, int(whole) // (replicas * max(1, int(steps)))))
    draft.put("training.data_parallel", "zero3" if shards > 1 else "ddp")
    if shards > 1:
        draft.put("training.sync", "micro_batch")
        if shards < sizes["dp"]:
            draft.put("training.shard_group", shards)
    if values.get("remat_policy", "full") == "full":
        draft.put("training.recompute", "full", origin("remat_policy"))
    for key in values:
        if key not in read:
            draft.note(f"not represented: {key} (line {document.lines.get(key, 0)})")


def _model(draft: Draft, values: Mapping[str, Any], origin: Any) -> None:
    name = str(values.get("model_name", "default"))
    match = re.fullmatch(r"(llama3)(?:\.\d)?-(\d+b)", name)
    known = f"{match[1]} {match[2].upper()}" if match else name
    put_shape(draft, known, origin("model_name"), name)
    draft.put("model.sequence", values.get("max_target_length", 2048), origin("max_target_length"))
    quantization = str(values.get("quantization", ""))
    if quantization.startswith("fp8") or quantization == "nanoo_fp8":
        draft.put("model.dtype", "fp8", origin("quantization"))
    elif quantization:
        draft.note(f"not represented: quantization {quantization}")
