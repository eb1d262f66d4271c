"""Health of hosts: what monitors report, what it does, and what it adds up to."""
