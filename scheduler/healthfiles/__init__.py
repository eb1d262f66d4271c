"""What other programs know of the health of hosts, read from their files."""
