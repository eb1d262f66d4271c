"""What the uplinks of domains carry, in files.

Inside: the links file; port tables, ibdiagnet2.db_csv, ports of UFM and of SONiC, and which
ports are whose uplink.
Enters: text, and the fabric that it is about. Leaves: shares of uplinks by domain, each with
the line that says so.
"""
