"""How a job saves its state, as far as its owner says."""

from __future__ import annotations

from muster.structs import replace, struct
from scheduler.core.policies.costs import Costs

PEER_INTERVAL_S = 60
MOST_PEERS = 3
Holders = tuple[tuple[int, ...], ...]  # of each block, the blocks that have copies of its state


@struct(frozen=True, slots=True)
class CheckpointTerms:
    """`interval_s`: productive time between two checkpoints in storage, None = as the tenants
    file says. `peers`: hosts that each have a copy of a host's state in memory, renewed every
    `peer_interval_s`; 0 = none."""

    interval_s: int | None = None
    peers: int = 0
    peer_interval_s: int = PEER_INTERVAL_S

    def costs(self, usual: Costs, *, is_restored: bool = False) -> Costs:
        """What an interruption costs this job. `is_restored`: its state comes from peers."""
        interval_s = self.peer_interval_s if is_restored else self.interval_s
        return usual if interval_s is None else replace(usual, checkpoint_s=interval_s)


AS_USUAL = CheckpointTerms()
