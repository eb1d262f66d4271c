"""Jobs whose steps take time: of a small dense model, and of one with experts."""

from typing import Any

from placement.workload.request import Request
from scheduler.files.job import job_from_mapping

DENSE = {
    "layers": 8, "hidden": 4096, "ffn": 16384, "heads": 32, "kv_heads": 8, "vocab": 32000,
    "sequence": 4096, "dtype": "bf16",
}  # fmt: skip
EXPERTS = {**DENSE, "experts": 16, "experts_per_token": 4, "expert_ffn": 8192}


def job_with_model(
    axes: dict[str, int], sequences: int = 16, model: dict[str, Any] = EXPERTS, **keys: Any
) -> Request:
    """A job without spares, of one sequence a micro-batch. `keys`: of the job file."""
    batch = {"global_sequences": sequences, "micro_sequences": 1}
    job = {"name": "j", "parallelism": axes, "model": model, "spares": 0, "batch": batch}
    return job_from_mapping({**job, **keys}).request
