"""Copies of ranks' state in the memory of hosts: files, their exchange, and all of one host."""
