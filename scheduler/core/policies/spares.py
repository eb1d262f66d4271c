"""By which rule spares are held; the section `spares` of the tenants file."""

from __future__ import annotations

from muster.structs import struct
from placement import EPSILON, FAILURES_PER_HOST_DAY, REPAIR_DAYS

DAY_S = 86_400


@struct(frozen=True, slots=True)
class SparePolicy:
    """Prior failure rates, how much they weigh, and how many spares are held.

    `failures_per_host_day`, `repair_s`: the rates that are assumed before failures are seen.
    `prior_host_days`, `prior_repairs`: what it weighs, as if it had been observed for so long; 0
    host-days: the prior stands, whatever is observed. `dispersion`: variance to mean of the hosts
    out in a zone; 1 = each fails for itself. `epsilon`: share of the time in which a zone may lack
    spares. `racks`: whole racks held in each zone of a gang on top. `in_zone`: spares stand by in
    every zone of a gang even where it cuts more for it. `per_zone`: so many are held in each zone
    of gangs, and nothing is sized; None: by failures. `lend`: idle spares run preemptible jobs, but
    for `keep_idle` in each zone.
    """

    failures_per_host_day: float = FAILURES_PER_HOST_DAY
    repair_s: int = round(REPAIR_DAYS * DAY_S)
    epsilon: float = EPSILON
    prior_host_days: int = 10_000
    prior_repairs: int = 20
    racks: int = 0
    in_zone: bool = False
    dispersion: float = 1.0
    lend: bool = True
    keep_idle: int = 1
    per_zone: int | None = None


BY_DEFAULT = SparePolicy()
