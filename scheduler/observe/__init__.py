"""What operators see of a running scheduler: status, metrics, logs.

Numbers come from three places, and the core knows of none of them:

    census      read off one state                      hosts, GPUs, queue, cuts
    tally       a fold over events                      waits, failures, swaps, gaps
    instruments measured around the stages of a write   queue, admit, decide, solve, commit, append

The first two are pure, so that a replay of the log gives the same numbers.
"""
