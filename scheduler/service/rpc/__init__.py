"""The methods of the service: one servicer class per subject, and the one that joins them.

Inside: jobs, hosts, tenants, windows, spares, health, defrag, watch, status; service puts
them together. Each class is given what it needs: the backend, and caches it shares with others.
Enters: a request and its context. Leaves: a response, or an error of service.errors.
"""
