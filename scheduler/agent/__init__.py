"""The agent: one process a host, which starts, watches and stops ranks at a server's word.

Inside: the session with the server and its two clocks (session, agent), attempts and what is
kept of them on disk (attempt, order), the parent of the ranks (supervisor, zygote: standard
library alone, run as files), process groups and cgroups (processes), who may run what where
(allow), logs of ranks (ranklog).
Enters: words of the server (scheduler.v1.agent). Leaves: processes, and what became of them.
"""
