"""Whether a host is fit to run ranks.

Inside: gates before the ranks of an attempt start (gate), longer checks of an idle host
(burn_in), and what its hardware says of its health: when it is asked (prober), by a program of
its own that a driver may hold for ever (probe: standard library alone, run as a file).
Enters: orders of the server, devices and counters of the host. Leaves: findings, or GateFailed.
"""
