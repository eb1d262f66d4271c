"""Ports of switches, in files of other programs: what the uplinks of domains carry now.

Inside: port tables and ibdiagnet2.db_csv (tables), ports of UFM and of SONiC (switchports), and
which ports are whose uplink (load).
Enters: paths. Leaves: shares of uplinks by domain, each with the line that says so.
"""
