"""The twin: a cluster as it is now, and what may become of it, with and without changes.

In: a fork of a running server or of a backup, and changes in words. Out: what the same weeks are
worth with and without them, over several seeds. Whatever happens to the twin goes through the
scheduler that serves, from the very state of the cluster.

    fork       the state, the jobs that ended, the options of the server
    workload   jobs drawn from those of the log: when they come, what they ask, how long they run
    outages    failures and repairs at the rates of the log
    changes    what is different, read from words
    future     one run under one seed, from the state on
    tally      what came of a run: waits, host time, restarts
    prices     what host time, uplinks and repairs cost
    study      all runs side by side, means and intervals
    answer     the sentence and the tables for people;  page: the same as a page
"""
