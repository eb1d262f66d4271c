"""Whether silent hosts have failed, or this server is cut off from them.

Hosts fail one at a time, or a rack at a time; when many stop sending messages together, it is more
likely that the server, or the network to it, is to blame. The gangs there run on, and nobody is
helped by starting them anew. Source: the node lifecycle controller of Kubernetes, which evicts
nothing in full disruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

ALL_SHARE: Final = 1 / 4  # of all agents, silent together
DOMAIN_SHARE: Final = 1 / 2  # of the agents of an outermost domain
FEW: Final = 2  # hosts may fail together in a cluster of any size, unless there are no others


def cut_domains(
    silent: Collection[str], agents: Collection[str], domain_of: Callable[[str], str]
) -> dict[str, int]:
    """Return how many hosts are silent in each outermost domain that the server is held to be cut
    off from. `agents`: hosts that have one, the silent ones included."""
    quiet, there = Counter(map(domain_of, silent)), Counter(map(domain_of, agents))
    if _is_many(len(silent), len(agents), ALL_SHARE):
        return dict(quiet)
    return {d: count for d, count in quiet.items() if _is_many(count, there[d], DOMAIN_SHARE)}


def _is_many(silent: int, agents: int, share: float) -> bool:
    return silent > 1 and (silent == agents or silent > max(FEW, agents * share))
