"""The log of events: the only thing that is durable; a state is its fold.

Inside: events and states as bytes, recovery at a start,
what an event did to jobs, hosts and windows as watchers see it, and the stores.
Enters: events. Leaves: a state at any version that is kept.
"""
