"""Restarts: how a gang that lost hosts goes on, at the least cost.

Inside: the search over ways back (swap, restart, shrink, wait), their prices, spares
recalled from loans, pools that run dry, and what would happen if a host failed now.
Enters: interrupted gangs. Leaves: swaps, resizes, requeues in a plan.
"""
