"""Tables of training runs: each row a job and the machine it ran on, as a CSV file has them.

Columns: gpu, gpus, gpus_per_node, network_gbps_per_gpu; the model's shape; tp, pp, vp, cp, ep,
dp; micro_batch, global_batch (sequences), precision, fsdp_or_zero, recompute, trained. What was
measured is never read here. Ranks are ordered tp-cp-ep-dp-pp, as Megatron does.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from typing import Any

from muster.structs import struct
from placement import BadInput
from placement.fabric.gpus import Gpu, gpu_named
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.flops import parameter_count
from placement.workload.parallelism import expert_axes
from placement.workload.request import Request
from placement.workload.training import ModelShape
from scheduler.files.errors import InputError, Problem
from scheduler.files.job import job_from_mapping
from scheduler.files.yaml12 import read_text

REQUIRED = """
    id gpu gpus layers hidden ffn heads kv_heads vocab seq tp pp cp ep dp micro_batch global_batch
    precision
"""
SHARDING = {
    **{"": "zero1", "ddp": "ddp", "zero0": "ddp", "zero1": "zero1"},
    **{"zero2": "zero2", "zero3": "zero3", "fsdp": "zero3"},
}
# Recomputation that does not keep scores, which fused attention does anyhow, is "selective".
RECOMPUTE = {"": "selective", "none": "selective", "selective": "selective", "full": "full"}
NIC_GBPS = {"A100": 200, "A100-40GB": 200, "B300": 800, "GB300": 800}  # of one GPU, where not said
USUAL_NIC_GBPS = 400
ORDER = "tp-cp-ep-dp-pp"
TRAYS = 16  # of an NVLink rack that a job takes where it fills several (NVIDIA's SEGMENT=16)
RACK_GPUS = 72
POD = 256  # chips of a TPU pod, which its own links join
_LATENT = {"query_rank": 1536, "kv_rank": 512, "rope_dim": 64}  # DeepSeek-V3 (2024), 4.2
CLOSE = 0.005  # shares of params_b that the count of parameters may differ by


@struct(frozen=True, slots=True)
class StepRow:
    """One row of a table of steps: its job and fabric, or in `note` why no job file can express
    it."""

    number: int
    name: str
    cells: Mapping[str, str]
    request: Request | None
    fabric: Fabric | None
    note: str


def read_table(path: str) -> Iterator[StepRow]:
    """Read the rows of a table of steps, in the file's order. Raises: InputError where it is no
    such table."""
    reader = csv.DictReader(read_text(path).splitlines(), restkey="more", restval="")
    try:
        missing = [column for column in REQUIRED.split() if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(Problem("", f"has no column {', '.join(missing)}", path, 1))
        for row in reader:
            yield row_of(reader.line_num, {key: str(cell).strip() for key, cell in row.items()})
    except csv.Error as error:
        problem = Problem("", f"is not CSV: {error}", path, reader.line_num)
        raise InputError(problem) from None


def row_of(number: int, cells: Mapping[str, str]) -> StepRow:
    """Return the job and the fabric of one row, which is on that line of its file."""
    name, notes = cells["id"] or f"line-{number}", list[str]()
    try:
        gpu = gpu_named(cells["gpu"], "gpu", {})
        request = job_from_mapping(_job(cells, notes)).request
        fabric = _fabric(cells, gpu)
        request.hosts_needed(fabric.gpus_per_host)
        gpu.peak(cells["precision"] or "bf16")
    except InputError as error:
        return StepRow(number, name, cells, None, None, "; ".join(map(str, error.found)))
    except BadInput as error:
        return StepRow(number, name, cells, None, None, str(error))
    return StepRow(number, name, cells, request, fabric, "; ".join(notes))


def _count(cells: Mapping[str, str], column: str, default: int | None = None) -> int:
    text = cells.get(column, "")
    if not text and default is not None:
        return default
    if not re.fullmatch(r"\d{1,12}(\.0*)?", text):
        raise BadInput(column, f"must be a whole number, not {text!r}")
    return int(text.partition(".")[0])


def _job(cells: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """The content of the job file. Raises: BadInput where none can say the row."""
    tp, cp, pp, dp = (max(1, _count(cells, axis, 1)) for axis in ("tp", "cp", "pp", "dp"))
    if tp * cp * pp * dp != _count(cells, "gpus"):
        ranks = f"{tp * cp * pp * dp:,}"
        raise BadInput("gpus", f"tp x cp x pp x dp is {ranks}, not the {cells['gpus']} GPUs")
    group = max(1, _count(cells, "ep", 1))
    ep, dp = expert_axes(tp * cp, dp, group) if group > 1 else (1, dp)
    batch = {"global_sequences": _count(cells, "global_batch")}
    batch["micro_sequences"] = max(1, _count(cells, "micro_batch", 1))
    if pp > 1:
        batch["virtual_stages"] = max(1, _count(cells, "vp", 1))
    training = _training(cells, dp)
    if group > 1 and tp > 1:
        training["expert_tp"] = 1
    return {
        "parallelism": {"tp": tp, "cp": cp, "ep": ep, "pp": pp, "dp": dp, "order": ORDER},
        "model": _model(cells, notes),
        "batch": batch,
        "training": training,
    }


def _model(cells: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """The shape; attention is latent where only that gives the parameters of the row."""
    names = {"layers": "layers", "hidden": "hidden", "ffn": "ffn", "heads": "heads"}
    names |= {"kv_heads": "kv_heads", "vocab": "vocab", "sequence": "seq"}
    model: dict[str, Any] = {key: _count(cells, column) for key, column in names.items()}
    model["dtype"] = cells["precision"] or "bf16"
    model["gated"] = cells.get("gated", "1") != "0"
    model["tied_embeddings"] = cells.get("tied", "0") == "1"
    if width := _count(cells, "head_dim", 0):
        model["head_dim"] = width
    if experts := _count(cells, "experts", 0):
        model |= {"experts": experts, "experts_per_token": _count(cells, "topk")}
        for key in ("expert_ffn", "shared_experts", "dense_layers"):
            model[key] = _count(cells, key, 0)
    stated = _billions(cells)
    if stated and experts and parameter_count(ModelShape(**model)) > stated * (1 + CLOSE):
        latent = model | _LATENT
        if abs(parameter_count(ModelShape(**latent)) / stated - 1) < CLOSE:
            notes.append("attention is latent: its parameters are those of the row")
            return latent
    return model


def _billions(cells: Mapping[str, str]) -> float:
    """Parameters that the row states; 0 where it states none."""
    text = cells.get("params_b", "")
    try:
        return float(text or 0) * 1e9
    except ValueError:
        raise BadInput("params_b", f"must be a number of billions, not {text!r}") from None


def _training(cells: Mapping[str, str], dp: int) -> dict[str, Any]:
    sharing, again = cells.get("fsdp_or_zero", ""), cells.get("recompute", "")
    pods = re.match(r"fsdp ici (\d+)", sharing)
    data_parallel = "zero3" if pods else SHARDING.get(sharing)
    if data_parallel is None:
        raise BadInput("fsdp_or_zero", f"{sharing!r} has no key in a job file")
    if again not in RECOMPUTE:
        raise BadInput("recompute", f"{again!r} has no key in a job file")
    training: dict[str, Any] = {"data_parallel": data_parallel, "recompute": RECOMPUTE[again]}
    if data_parallel in ("zero2", "zero3"):
        training["sync"] = "micro_batch"
    if pods and int(pods[1]) < dp:
        training["shard_group"] = int(pods[1])
    if cells.get("sp") == "0":
        training["sequence_parallel"] = False
    training["trained"] = cells.get("trained") or "full"
    return training


def _fabric(cells: Mapping[str, str], gpu: Gpu) -> Fabric:
    """As many hosts as the job takes, on a network that is not oversubscribed."""
    gpus, each = _count(cells, "gpus"), _count(cells, "gpus_per_node", 8)
    if not each:
        raise BadInput("gpus_per_node", "must be above 0")
    speed = cells.get("network_gbps_per_gpu", "")
    try:
        nic = float(speed) if speed else NIC_GBPS.get(gpu.name, USUAL_NIC_GBPS)
    except ValueError:
        raise BadInput("network_gbps_per_gpu", f"must be a number, not {speed!r}") from None
    hosts = -(-gpus // each)
    spec: dict[str, Any] = {
        "name": "table",
        "gpus_per_host": each,
        "gpu": gpu.name,
        "nic_gbps": nic,
    }
    joined = 0
    if gpu.name.startswith("GB"):
        joined = hosts if gpus <= RACK_GPUS else TRAYS
    elif gpu.name.startswith("TPU"):
        joined = min(hosts, POD // each)
    if not joined:
        return from_spec({**spec, "tiers": [{"name": "host", "count": hosts}]})
    tiers: list[dict[str, Any]] = [{"name": "rack", "count": -(-hosts // joined)}]
    tiers[0]["scale_up"] = {"gbps_per_gpu": gpu.scale_up_gbps}
    return from_spec({**spec, "tiers": [*tiers, {"name": "host", "count": joined}]})
