"""Decisions beside the writer: they are slow, it is not.

Inside: the loop that decides again while anything changed, the executor that decides in
a thread or in a process of its own, and what that computes.
Enters: a state. Leaves: a plan, which the writer commits on the newest state.
"""
