"""What people write, read strictly: every error names file, line and field.

Inside: job, tenants, windows and fabric files, YAML 1.2 without surprises, times and
durations, nodes of Slurm and Kubernetes (health), certificates, and files written whole or
not at all. Files of other programs are read by importers/, found by entry points (plugins).
Enters: text. Leaves: values of the core, or InputError.
"""
