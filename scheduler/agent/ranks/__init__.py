"""The ranks of attempts on one host: how they are started, isolated, read and ended.

Inside: attempts and what is kept of them on disk (attempt, order), the parent of the ranks
(supervisor, zygote: standard library alone, run as files), process groups and cgroups
(processes), who may run what where (allow), containers, what users run beside ranks (channels),
and what ranks write: logs (ranklog), step times (rank_times) and stacks.
Enters: orders of the agent, and the files of ranks. Leaves: processes, exits, output and reports.
"""
