"""How large a gang's checkpoint is, and how long it takes to write and to load."""

from __future__ import annotations

from dataclasses import dataclass

from placement.fabric.constraints import seen_by
from placement.fabric.tree import Fabric
from placement.workload.flops import parameter_count
from placement.workload.request import Request

STATE_BYTES = 12  # of a parameter: fp32 copy and two moments, or fp32 parameter and moments
STORAGE_GB_PER_S = 2_000.0  # sustained, for all of Llama 3's cluster (2024, 3.3.1)


@dataclass(frozen=True, slots=True)
class CheckpointSizes:
    """Bytes of a checkpoint, in all and of the fullest host, and what the NICs of the gang and
    of one host carry in one direction. Units: bytes, bytes/s."""

    total: int
    of_host: int
    gang_bytes_per_s: float
    host_bytes_per_s: float

    def write_s(self, storage_bytes_per_s: float) -> float:
        """To storage or from it, all hosts at once."""
        return self.total / min(storage_bytes_per_s, self.gang_bytes_per_s)

    @property
    def from_peer_s(self) -> float:
        """One host loads its state from the memory of another."""
        return self.of_host / self.host_bytes_per_s


def sizes_of(fabric: Fabric, request: Request) -> CheckpointSizes | None:
    """None without a model. Bf16 parameters are made again from the fp32 copy, so they are not
    written; every host has an equal share of what data parallel ranks share out."""
    if request.model is None:
        return None
    seen = seen_by(fabric, request.where)
    hosts = request.hosts_needed(seen.gpus_per_host)
    total = STATE_BYTES * parameter_count(request.model)
    host_rate = seen.gpus_per_host * seen.nic_gbps * 1e9 / 8
    return CheckpointSizes(total, -(-total // hosts), hosts * host_rate, host_rate)
