"""apply(state, event): the only way in which a state changes.

Inside: what the events of jobs, hosts and windows do to the state, each beside what that
means to readers of the log (effects); the record of a host, the account of a job's time.
Enters: a state and an event. Leaves: the next state, and the effects.
"""
