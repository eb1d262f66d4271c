"""Health of hosts in files: the policy, and what Slurm and Kubernetes say of nodes, which their
launchers read too.

Inside: the health file, `scontrol show nodes` and `sinfo`, lists of Kubernetes' nodes.
Enters: text. Leaves: HealthPolicy, or reports for hosts.
"""
