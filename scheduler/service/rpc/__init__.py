"""The methods of the service: one servicer class per subject, and the one that joins them.

Inside: calls about jobs (jobs), about what the cluster has and who may use it (cluster), and about
all of it over time (overview); service puts them together. Each class is given what it needs: the
backend, and caches it shares with others.
Enters: a request and its context. Leaves: a response, or an error of service.errors.
"""
