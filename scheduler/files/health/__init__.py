"""Health of hosts in files: the policy, and what DCGM and Slurm say of hosts.

Inside: the health file, JSON of dcgmi, `scontrol show nodes` and `sinfo`.
Enters: text. Leaves: HealthPolicy, or reports for hosts.
"""
