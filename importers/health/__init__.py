"""Health tables of other programs: what DCGM says of GPUs. Slurm's and Kubernetes' own are read
by the launchers too, so they are in scheduler/files/health."""
