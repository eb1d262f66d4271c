"""commit(state, plan, now_ns): re-check a plan on the newest state, all or nothing.

Inside: commit, the ledger of what its actions leave to take, the re-check of evictions, and
what happens to spares on loan that an action touches.
Enters: a plan made on an older state. Leaves: events, or a Conflict with a Stale an action.
"""
