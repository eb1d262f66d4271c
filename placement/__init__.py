"""Where the ranks of a gang go, what that cuts, and a bound that no placement beats.

Enters: a fabric, free hosts as a bit set, a request, limits counted in work. Leaves: a
placement with its cut, bound and spares, or why there is none: `place`. Beside it stand what
moves a running gang (`choose_swaps`, `placed_near`, ...), and what stands by for it
(`Sizing`). What switches and cables make of a placed gang is the package `network`.
Values in, a value out: the same input gives the same answer, byte for byte. Nothing here
knows queues, clocks or RPC.

Packages outside import from here, and types from `placement.fabric`, `placement.workload` and
`placement.objective`; nothing else. A name is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.baselines import (
        Choose,
        at_random,
        by_spread,
        chosen,
        consecutive,
    )
    from placement.collective_sweep import PlacedCollective, compare_collectives
    from placement.errors import BadInput, positive, positive_integer, refuse_unknown_keys
    from placement.fabric.graph import to_networkx
    from placement.largest import has_room, legal_sizes
    from placement.parallelism_sweep import PlacedChoice, Sweep, sweep
    from placement.part_of_host import choose_gpus
    from placement.placer import impossible, place
    from placement.replace.elastic import NEW, carried, on_hosts, ranks_inside, replicas_on
    from placement.replace.near import Hint, placed_near, swapped_near
    from placement.replace.shift import shifted
    from placement.replace.swaps import Swaps, choose_swaps
    from placement.solver import max_flow
    from placement.spares.sizing import (
        BY_DEFAULT,
        EPSILON,
        FAILURES_PER_HOST_DAY,
        REPAIR_DAYS,
        Sizing,
    )
    from placement.tiers.bound_proofs import BoundProof, bound_proofs
    from placement.tiers.fragmentation import (
        NO_PREFERENCE,
        FreeTier,
        Preference,
        count_free_domains,
    )
    from placement.tiers.objectives import measure
    from placement.warmup import warm_up

# What leaves each module.
MODULES = {
    module: names.split()
    for module, names in {
        "baselines": "Choose at_random by_spread chosen consecutive",
        "collective_sweep": "PlacedCollective compare_collectives",
        "errors": "BadInput positive refuse_unknown_keys positive_integer",
        "fabric.graph": "to_networkx",
        "largest": "has_room legal_sizes",
        "parallelism_sweep": "PlacedChoice Sweep sweep",
        "part_of_host": "choose_gpus",
        "placer": "impossible place",
        "replace.elastic": "NEW carried on_hosts ranks_inside replicas_on",
        "replace.near": "Hint placed_near swapped_near",
        "replace.shift": "shifted",
        "replace.swaps": "Swaps choose_swaps",
        "solver": "max_flow",
        "spares.sizing": "BY_DEFAULT EPSILON FAILURES_PER_HOST_DAY REPAIR_DAYS Sizing",
        "tiers.bound_proofs": "BoundProof bound_proofs",
        "tiers.fragmentation": "FreeTier count_free_domains NO_PREFERENCE Preference",
        "tiers.objectives": "measure",
        "warmup": "warm_up",
    }.items()
}
_MODULE_OF = {name: f"placement.{module}" for module, names in MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
