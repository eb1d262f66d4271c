"""Host failures: seeded models, presets and logs, as one stream of outages in time order.

What `--failures` takes, alone or joined with `;`:

    poisson:rate=6.5,repair_h=24                        per 1,000 host-days
    weibull:rate=6.5,shape=0.7,repair_h=24              early life: most fail when new
    poisson:rate=0.5,repair_h=4,scope=rack,cause=tor    all hosts of a rack at once
    poisson:rate=3,repair_h=4,lemons=1.2%x20,cause=gpu  1.2 % of the hosts fail 20 x as often
    llama3   rsc1:scale=2                               causes with published rates
    model.yaml                                          causes in a file, see yamlfile.py
    outages.csv                                         time_s, host, state, cause
    infinitehbd:FILE                                    a log of another cluster

Each cause draws from random streams of its own, named by the seed, so that adding or
changing one shifts no other. Logs end: `LogWindow` begins them later, or again and again.
"""

from simulator.failures.fleetlog import ALL, LogExtent, LogWindow
from simulator.failures.outage import Outage, merged
from simulator.failures.text import FailureStream, parse

__all__ = ["ALL", "FailureStream", "LogExtent", "LogWindow", "Outage", "merged", "parse"]
