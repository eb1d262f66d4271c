"""What the uplinks of domains carry: the links file of muster. Ports of switches that other
programs list are read by importers/ports."""
