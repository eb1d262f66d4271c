"""Preemption: which gangs to evict so that another one starts or goes on.

Inside: the search for victims (few, cheap, in one place), the stage of a decision that
uses it, and hosts taken back from preemptible gangs for a gang that would stop.
Enters: candidates of core.capacity. Leaves: evictions in a plan.
"""
