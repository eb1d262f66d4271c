"""Immutable collections whose next version costs what changed, not what is there.

Inside: a persistent map (hosts, jobs, accounts), a persistent list of names (the queue),
and `remade`, the next version of a value of which a few fields change.
Enters: nothing of muster. Leaves: Mapping and Sequence.
"""
