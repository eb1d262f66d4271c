"""Calls about the whole cluster, now and over time.

Inside: the cluster on one screen (status), failures and what came of each (incidents), streams of
changes (watch), who asked for which (audit), and the whole state for a copy elsewhere (state).
Enters: requests that change nothing. Leaves: what the caller may see of it.
"""
