"""XIDs, the errors that NVIDIA's driver writes into the kernel's log: whose they are.

An application's own errors are never held against the host, fatal ones take it out of
service at once, others count: some are harmless once and a sign of trouble in numbers.

Sources: NVIDIA, XID catalog (docs.nvidia.com/deploy/xid-errors, 2025): what it answers with
a reset of the GPU or of the machine, or with a workflow that ends in one, is fatal; what it
leaves to the application is the application's; the rest counts. Which drain a host at once:
Kokolis et al. (HPCA 2025, section III). By choice against the catalog: a contained error and
retired resources wait for a checkpoint, as only the next reset mends them; a corrupted stream
counts, for it may be the bus that corrupts it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from muster.structs import struct


class Blame(StrEnum):
    """The cause of an XID error, which decides what happens to the host."""

    APPLICATION = "application"  # the job's own: on record, never the host's
    COUNTS = "counts"  # several are a sign of trouble
    RETIRE = "retire"  # the GPU needs a reset: what runs leaves at its next checkpoint
    FATAL = "fatal"  # the GPU is of no use any more


@struct(frozen=True, slots=True)
class Xid:
    text: str
    blame: Blame


_APP, _COUNTS, _RETIRE, _FATAL = Blame

XIDS: Final[dict[int, Xid]] = {
    8: Xid("GPU stopped processing", _COUNTS),
    11: Xid("invalid or corrupted push buffer stream", _APP),
    13: Xid("graphics engine exception", _APP),
    25: Xid("invalid or illegal push buffer stream", _APP),
    31: Xid("GPU memory page fault", _APP),
    32: Xid("invalid or corrupted push buffer stream", _COUNTS),
    37: Xid("driver firmware error, by a method that it does not know", _APP),
    38: Xid("driver firmware error", _COUNTS),
    43: Xid("GPU stopped processing, reset channel", _APP),
    45: Xid("preemptive cleanup, due to previous errors", _APP),
    46: Xid("GPU stopped processing", _FATAL),
    48: Xid("double-bit ECC error", _FATAL),
    54: Xid("auxiliary power is not connected", _FATAL),
    61: Xid("internal micro-controller breakpoint or warning", _COUNTS),
    62: Xid("internal micro-controller halt", _FATAL),
    63: Xid("memory page retirement or row remapping recorded", _COUNTS),
    64: Xid("memory page retirement or row remapping failed", _FATAL),
    66: Xid("illegal access by the driver", _COUNTS),
    68: Xid("video decoder exception", _COUNTS),
    69: Xid("graphics engine class error", _APP),
    74: Xid("NVLink error", _FATAL),
    79: Xid("GPU has fallen off the bus", _FATAL),
    80: Xid("corrupted data sent to the GPU", _COUNTS),
    92: Xid("high single-bit ECC error rate", _COUNTS),
    93: Xid("wear limit of the InfoROM passed", _COUNTS),
    94: Xid("contained memory error", _RETIRE),
    95: Xid("uncontained memory error", _FATAL),
    109: Xid("context switch timeout", _FATAL),
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
    151: Xid("key rotation error", _FATAL),
    154: Xid("recovery action changed", _COUNTS),
    155: Xid("NVLink: software-defined error", _FATAL),
    156: Xid("resource retirement", _RETIRE),
    157: Xid("resource retirement failed", _RETIRE),
    158: Xid("GPU fatal timeout", _FATAL),
    167: Xid("PCIe fatal timeout", _FATAL),
    169: Xid("internal micro-controller halt", _FATAL),
    171: Xid("uncorrectable DRAM error, reported with 48", _FATAL),
    172: Xid("uncorrectable SRAM error, reported with 48", _FATAL),
}
UNKNOWN: Final = Xid("not in the table", _COUNTS)
MOST: Final = 100_000
