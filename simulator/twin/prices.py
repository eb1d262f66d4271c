"""What a cluster costs; the file of `--prices`, of which docs/twin.md has an example.

Every key but gpu_hour may be left out. A month has 730 hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.fabric.tree import Fabric
from scheduler.files.job_keys import Keys, Text, checked_keys
from scheduler.files.yaml12 import load
from simulator.field_types import Amount, Positive

MONTH_H = 730


class PriceList(Keys):
    """Unit prices of hosts, uplinks and repairs, in `currency`."""

    currency: Text = "USD"
    gpu_hour: Positive
    host_month: Amount = 0.0
    uplink_gbps_month: Amount = 0.0
    spare_host_month: Amount = 0.0
    repair: Amount = 0.0
    repair_contract_month: Amount = 0.0

    def of(self, run: Mapping[str, Any], fabric: Fabric, horizon_h: float) -> dict[str, float]:
        """Return the bill of one run by item, `total`, and `per_effective_gpu_h`, 0 where nothing
        was effective."""
        months, gpus = horizon_h / MONTH_H, fabric.gpu_count / fabric.host_count
        bill = {
            "gpus": self.gpu_hour * run["all_gpu_h"],
            "hosts": self.host_month * fabric.host_count * months,
            "uplinks": self.uplink_gbps_month * uplink_gbps(fabric) * months,
            "spares": self.spare_host_month * run["spare_gpu_h"] / gpus / MONTH_H,
            "repairs": self.repair * run["repairs"],
            "repair_contract": self.repair_contract_month * fabric.host_count * months,
        }
        total, effective_h = sum(bill.values()), run["effective_gpu_h"]
        per_hour = total / effective_h if effective_h else 0.0
        return {**bill, "total": total, "per_effective_gpu_h": per_hour}


def load_prices(path: str) -> PriceList:
    """Load a file of prices. Raises: InputError with every fault found, each with its line."""
    return checked_keys(PriceList, load(path))


def uplink_gbps(fabric: Fabric) -> float:
    """Return the bandwidth of all uplinks of the outermost tier together; 0 where there is only one
    domain."""
    if fabric.zone_count < 2:
        return 0.0
    return float(fabric.tiers[0].uplink_bytes_per_s.sum()) * 8 / 1e9
