"""What the state keeps about hosts, tenants and time: values that the fold writes.

Inside: the health record of a host, what the tenants file says of a tenant and since when,
failure rates of the cluster, and goodput (productive and lost time of a job).
Enters: nothing but values. Leaves: parts of State and Job.
"""
