"""XIDs, the errors that NVIDIA's driver writes into the kernel's log: whose they are.

An application's own errors are never held against the host, fatal ones take it out of
service at once, others count: some are harmless once and a sign of trouble in numbers.

Source: NVIDIA, XID errors (GPU deployment and management), causes and recommended
actions; which of them drain a host at once, Kokolis et al. (HPCA 2025, section III).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Blame(StrEnum):
    """Whose error it is, and hence what becomes of the host."""

    APPLICATION = "application"  # the job's own: on record, never the host's
    COUNTS = "counts"  # several are a sign of trouble
    RETIRE = "retire"  # the GPU needs a reset: what runs leaves at its next checkpoint
    FATAL = "fatal"  # the GPU is of no use any more


@dataclass(frozen=True, slots=True)
class Xid:
    text: str
    blame: Blame


_APP, _COUNTS, _RETIRE, _FATAL = Blame

XIDS: Final[dict[int, Xid]] = {
    8: Xid("GPU stopped processing", _COUNTS),
    13: Xid("graphics engine exception", _APP),
    31: Xid("GPU memory page fault", _APP),
    32: Xid("invalid or corrupted push buffer stream", _COUNTS),
    38: Xid("driver firmware error", _COUNTS),
    43: Xid("GPU stopped processing, reset channel", _APP),
    45: Xid("preemptive cleanup, due to previous errors", _APP),
    46: Xid("GPU stopped processing", _FATAL),
    48: Xid("double-bit ECC error", _FATAL),
    54: Xid("auxiliary power is not connected", _FATAL),
    61: Xid("internal micro-controller breakpoint or warning", _COUNTS),
    62: Xid("internal micro-controller halt", _FATAL),
    63: Xid("ECC page retirement or row remapping recorded", _COUNTS),
    64: Xid("ECC page retirement or row remapping failed", _FATAL),
    66: Xid("illegal access by the driver", _COUNTS),
    68: Xid("video processor exception", _APP),
    69: Xid("graphics engine class error", _APP),
    74: Xid("NVLink error", _FATAL),
    79: Xid("GPU has fallen off the bus", _FATAL),
    92: Xid("high single-bit ECC error rate", _COUNTS),
    94: Xid("contained ECC error", _RETIRE),
    95: Xid("uncontained ECC error", _FATAL),
    109: Xid("context switch timeout", _COUNTS),
    110: Xid("security fault", _FATAL),
    119: Xid("GSP RPC timeout", _FATAL),
    120: Xid("GSP error", _FATAL),
    121: Xid("C2C link error", _COUNTS),
    122: Xid("SPI or PMU read failure", _COUNTS),
    123: Xid("SPI or PMU write failure", _COUNTS),
    136: Xid("link training failed", _FATAL),
    137: Xid("NVLink privilege error", _APP),
    140: Xid("unrecovered ECC error", _FATAL),
    143: Xid("GPU initialisation failure", _FATAL),
    144: Xid("NVLink: SAW error", _COUNTS),
    145: Xid("NVLink: RLW error", _COUNTS),
    146: Xid("NVLink: TLW error", _COUNTS),
    147: Xid("NVLink: TREX error", _COUNTS),
    148: Xid("NVLink: NVLPW control error", _COUNTS),
    149: Xid("NVLink: NETIR error", _COUNTS),
    150: Xid("NVLink: MSE error", _COUNTS),
    154: Xid("recovery action changed", _COUNTS),
    155: Xid("NVLink: software-defined error", _COUNTS),
    156: Xid("resource retirement", _COUNTS),
    157: Xid("resource retirement failed", _FATAL),
    158: Xid("GPU fatal timeout", _FATAL),
}
UNKNOWN: Final = Xid("not in the table", _COUNTS)
MOST: Final = 100_000
