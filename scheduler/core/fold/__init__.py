"""apply(state, event): the only way in which a state changes.

Inside: apply, one case an event; what events do to hosts, to the record of a host, to
windows, and to the account of a job's time.
Enters: a state and an event. Leaves: the next state.
"""
