"""Agents on the nodes of a Slurm cluster: allocations that carry them (agents), the commands of
Slurm (commands), and when it refuses them (refusals).
"""
