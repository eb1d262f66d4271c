"""Job traces: what is replayed.

In: files of several formats, plain or gzip. Out: `TraceJob`s in submit order, bad records one
by one, and the `JobSpec` that the scheduler is asked to run.

    record      one job of a trace, one bad record
    formats     a reader per format
    load        open a trace by the name of its format, sorted
    sorting     by submit time, on disk where a file is in no order
    mapping     a trace's job as a gang of hosts;  shapes: the parallelism it may be given
    write       muster's own format
"""
