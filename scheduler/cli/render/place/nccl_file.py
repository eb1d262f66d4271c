"""A placement in the words of NCCL: the file of its example tuner plugin, and the environment.

The plugin (NVIDIA/nccl, plugins/tuner/example; NCCL 2.27 and later) reads one line for each
collective and range of sizes, and skips comments:

    collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff

-1 leaves a value to NCCL, or matches any. The environment stands in comments as commands:
`sed -n 's/^#[$] //p' FILE` prints them. Names and values are those of NCCL's user guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from network.collectives.nccl import NcclTuning, Operation

NOTHING: Mapping[str, bool] = MappingProxyType({})
AROUND = 2  # a line is for sizes from half to twice what the job sends
MOST_BYTES = 2**32 - 1  # the plugin's own word for no limit
PLUGIN = "libnccl-tuner-example.so"


def nccl_file(
    name: str, tunings: Sequence[NcclTuning], hints: Iterable[str], is_rail_optimised: bool,
    is_on_nvlink_racks: bool, exchanged: Mapping[str, bool] = NOTHING, queue_pairs: int = 1,
) -> Iterator[str]:  # fmt: skip
    """Return the lines of NCCL's configuration file. `hints`: where each axis runs, as sentences.
    `exchanged`: of axes that are all-to-all, whether they leave a node: a host, or a rack that
    shares an NVLink. `queue_pairs`: of a connection, over which switches spread its messages."""
    yield f"# {name!r}: NCCL on this placement. FILE is this file."
    yield f"#$ export NCCL_TUNER_PLUGIN={PLUGIN} NCCL_TUNER_CONFIG_FILE=FILE"
    yield from _environment(tunings, is_rail_optimised, is_on_nvlink_racks)
    if queue_pairs > 1:
        yield "# Switches hash queue pairs, of which a connection uses several, message by message:"
        yield f"#$ export NCCL_IB_QPS_PER_CONNECTION={queue_pairs} NCCL_IB_SPLIT_DATA_ON_QPS=0"
    yield from _exchanges(exchanged, is_rail_optimised, is_on_nvlink_racks)
    yield "# Ranks lie on hosts as `--format hostfile` lists them; rings follow that order."
    yield from (f"# {hint}" for hint in hints)
    for tuning in tunings:
        low, high = tuning.payload_bytes // AROUND, tuning.payload_bytes * AROUND
        yield f"# {tuning.axis}: {tuning.payload_bytes:,} bytes a call"
        yield ",".join(
            map(
                str,
                (
                    tuning.operation,
                    min(low, MOST_BYTES),
                    MOST_BYTES if high >= MOST_BYTES else high,
                    tuning.algorithm,
                    tuning.protocol.value.lower(),
                    *(-1, tuning.nodes, tuning.ranks, -1, -1),
                ),
            )
        )


def _exchanges(
    exchanged: Mapping[str, bool], is_rail_optimised: bool, is_on_nvlink_racks: bool
) -> Iterator[str]:
    """All-to-all is sends and receives for NCCL, which has no algorithms to choose from."""
    node = "rack" if is_on_nvlink_racks else "host"
    if is_rail_optimised and any(exchanged.values()):
        yield "# What is exchanged goes over NVLink to the card on the rail of its receiver:"
        yield "#$ export NCCL_P2P_PXN_LEVEL=2"
    for axis, is_leaving in exchanged.items():
        if not is_leaving:
            yield f"# {axis}: all-to-all, point to point over the NVLink of a {node}"
            continue
        yield (
            f"# {axis}: all-to-all, point to point, a message for each pair of ranks; to send once"
            f" to each {node}"
        )
        yield "# and forward there over NVLink takes a library that does, as DeepEP (traffic.md)"


def _environment(
    tunings: Sequence[NcclTuning], is_rail_optimised: bool, is_on_nvlink_racks: bool
) -> Iterator[str]:
    if is_on_nvlink_racks:
        yield "# Trays of a rack must find each other over NVLink, or the job does not start:"
        yield "#$ export NCCL_MNNVL_ENABLE=1"
    if is_rail_optimised:
        yield "# Rings keep to the rail of their network card:"
        yield "#$ export NCCL_CROSS_NIC=0"
    words = [
        f"{operation}:{next(iter(which))}"
        for operation in Operation
        if len(which := {t.algorithm for t in tunings if t.operation is operation}) == 1
    ]
    if words:
        yield "# Without the plugin (NCCL 2.24 and later), for all sizes and groups:"
        yield f'#    export NCCL_ALGO="{";".join(words)}"'
