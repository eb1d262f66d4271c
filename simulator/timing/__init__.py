"""How long things take: from the start of an attempt to its end, and what an interruption costs.

In: attempts that begin, stop and are left (scheduler/core/fold/attempts.py). Out: when each ends,
and what its time went to.

    flat        the scheduler's own rule: two numbers for every gang
    modelled    a time model: checkpoints, restarts, steps by placement and neighbours
    network     what a gang sends over shared uplinks, and how that slows it down
    store       writes of checkpoints to a store that gangs share
    times_file  the parameters of a model, as --times gives them, and known ones
    time_account  what the time of jobs, attempts and hosts went to
"""

from simulator.timing.flat import FlatTiming
from simulator.timing.modelled import ModelledTiming
from simulator.timing.time_account import EMPTY, PARTS, TimeAccount
from simulator.timing.times_file import TimeModel, load_time_model

__all__ = [
    "EMPTY",
    "PARTS",
    "FlatTiming",
    "ModelledTiming",
    "TimeAccount",
    "TimeModel",
    "load_time_model",
]
