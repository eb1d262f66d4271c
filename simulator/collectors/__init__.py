"""What is counted while a replay runs, each from one pass over its event log.

In: events, with the state after each. Out: totals, rows of ended jobs, tables, the data of
a report. Memory does not grow with the number of events.

    recorder        feeds all of them; writes events.jsonl and jobs.csv
    metrics         totals and a row for each ended job
    time_account    what the time of a job went to
    invariants      hosts, jobs and host time must add up
    report_data     what pages show: timeline, size_classes, failure_counts (bins)
"""
