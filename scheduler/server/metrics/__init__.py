"""/metrics: what observe counts, as Prometheus scrapes it.

Inside: samples of all metrics, the collector, the web application with who may read.
Enters: the state and counters of a running server. Leaves: the text format.
"""
