"""Rules about single hosts, which decide and commit ask alike.

Inside: what the health policy does by itself in time, hosts that fail again and again (lemons), and
gangs that leave hosts which retire (evaluation), and whether they should leave one before it fails
(prevention).
Enters: a state and a moment. Leaves: moves of hosts, and swaps.
"""
