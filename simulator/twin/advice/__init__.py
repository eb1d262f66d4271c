"""Advice: which of several choices to make, and what today's state costs.

Inside: studies of spares, oversubscription, checkpoints, policies, defragmentation, quotas and
maintenance (choices), the shapes of quotas, the evacuation of a domain, and what fragmentation
costs now.
Enters: a fork of a cluster. Leaves: a front of choices, and a sentence.
"""
