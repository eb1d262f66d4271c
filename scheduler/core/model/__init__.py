"""The values of the scheduler: what is asked, what is, what happened, what is proposed.

Inside: jobs, hosts (in state.py) and windows with their lifecycle tables; commands;
events; the state, their fold; the plan of a decision; requests that were answered; in records/
what is kept about a host, a tenant and the time of a job.
Enters: the policies that operators set (core.policies).
Leaves: immutable values, nothing that decides.
"""
