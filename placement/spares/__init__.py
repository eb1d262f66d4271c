"""Hosts and copies that stand by against failures.

Enters: rates of failure and repair, a gang on hosts, the hosts left free. Leaves: how many
spares a zone needs (sizing.py), which hosts to hold as such (holding.py), and which hosts of
the gang keep copies of the others' state in memory, with what those outlive (peer_copies.py).
"""

from placement.spares.holding import Holding, hold_spares, reserve_by_zone
from placement.spares.peer_copies import (
    MOST_PEERS,
    Holders,
    Survival,
    choose_holders,
    close_copies,
    fatal_domains,
    mend_holders,
    refuse_without_peers,
    restore_source,
    survival,
)
from placement.spares.sizing import (
    BY_DEFAULT,
    EPSILON,
    FAILURES_PER_HOST_DAY,
    REPAIR_DAYS,
    Sizing,
    standby_pool,
)

__all__ = [
    "BY_DEFAULT",
    "EPSILON",
    "FAILURES_PER_HOST_DAY",
    "MOST_PEERS",
    "REPAIR_DAYS",
    "Holders",
    "Holding",
    "Sizing",
    "Survival",
    "choose_holders",
    "close_copies",
    "fatal_domains",
    "hold_spares",
    "mend_holders",
    "refuse_without_peers",
    "reserve_by_zone",
    "restore_source",
    "standby_pool",
    "survival",
]
