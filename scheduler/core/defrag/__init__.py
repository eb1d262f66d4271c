"""Defragmentation: moves that free hosts in one outermost domain.

Inside: the cheapest moves for so many hosts, the policy that says when they pay, and
moves that an operator asked for, checked again and made all or none.
Enters: a state. Leaves: a Proposal, or moves in a plan.
"""
