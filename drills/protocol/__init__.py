"""The protocol of muster searched: every order of steps and faults on a few servers and hosts.

Inside: the search (search), a log whose states are made once (log), the protocol of the log with
its leaders and callers (leaders), that of launches with its agents (launches, on muster's own agent
and launcher in steps: stepped), how far both are searched (launch_scopes, leader_scopes), a program
that searches wide (`python -m drills.protocol`).
Enters: a scope. Leaves: counts of states, or the shortest way to a state that must not be.
docs/protocol.md says which of it is muster's own code.
"""
