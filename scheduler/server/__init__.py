"""A server from start to graceful stop: it puts the rooms together.

Inside: serve, the server file, signals and systemd, metrics for Prometheus.
Enters: Settings, from `muster serve` and its file. Leaves: a listening server.
"""
