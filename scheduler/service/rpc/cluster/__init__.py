"""Calls about what the cluster has, and who may use it.

Inside: the fabric, its hosts and their health (hosts), its links, maintenance windows, spares by
zone, tenants, and moves against fragmentation (defrag).
Enters: requests of users and operators. Leaves: commands to the writer, and responses.
"""
