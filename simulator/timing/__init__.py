"""How long things take: from the start of an attempt to its end, and what an
interruption costs. `Flat` is the scheduler's own rule; `Modelled` follows a file of knobs,
the placement of each gang and what the gangs beside it send."""

from simulator.timing.flat import Flat
from simulator.timing.knobs import Times, load_times
from simulator.timing.modelled import Modelled
from simulator.timing.spent import PARTS, Spent, Timing

__all__ = ["PARTS", "Flat", "Modelled", "Spent", "Times", "Timing", "load_times"]
