"""The log of events: the only thing that is durable; a state is its fold.

Inside: events and states as bytes, recovery at a start, and the stores.
Enters: events. Leaves: a state at any version that is kept.
"""
