"""Hosts and copies that stand by against failures.

Enters: rates of failure and repair, a gang on hosts, the hosts left free. Leaves: how many
spares a zone needs (sizing.py), which hosts to hold as such (holding.py), and which hosts of
the gang keep copies of the others' state in memory, with what those outlive (peer_copies.py).
"""
