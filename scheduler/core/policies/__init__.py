"""What operators and users set: rules as values, not yet applied to anything.

Inside: tenants and priority classes, spares, health, health signals and XIDs, affinity,
checkpoint and dataset terms of a job, what these cost on shared storage (storage_use), the cost
of an interruption.
Enters: what files.tenants, files.health and job files say.
Leaves: frozen values with defaults; each is explained where it is applied.
"""
