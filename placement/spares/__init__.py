"""Hosts that stand by against failures.

Enters: rates of failure and repair, a gang on hosts, the hosts left free. Leaves: how many
spares a zone needs (sizing.py), and which hosts to hold as such (holding.py).
"""
