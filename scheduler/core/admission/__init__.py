"""admit(state, command, now_ns): the facts that a command makes true, or why not.

Inside: admit, updates of a job, reports of monitors, etags against lost updates, and
idempotency: a request that was carried out before does nothing a second time.
Enters: commands, which are never trusted. Leaves: events, or a Rejected.
"""
