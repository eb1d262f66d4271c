"""The scheduler on a virtual clock: traces and failures in, an event log and a report out.

The simulator swaps the clock and the launcher, never the policy: every decision comes
from the four functions of `scheduler.core` that the live service calls. Rooms stand on
each other, lower ones first (`make check` says so):

    kernel, sim_events               the virtual clock, what is due on it
    traces, failures, mixes          what goes in: jobs, outages of hosts, drawn job mixes
    timing                           how long attempts take and what interruptions cost
    options, experiment              what a user may ask for: one description of a replay
    engine, launcher, replay         the scheduler on the clock, the stand-in for real gangs
    collectors, report               what comes out: totals, checks, tables; pages and texts
    run, inputs                      one experiment from end to end; the digest of what it reads
    study, experiment_file           many replays, on the cores of a machine or on Dask (pool)
    twin                             a cluster as it is now, and what may become of it
    cli                              muster replay, compare, sweep, trace and twin
"""
