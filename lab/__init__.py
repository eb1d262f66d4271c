"""The lab: a fabric file as namespaces of this machine, with packets on shaped links.

`plan` turns a fabric into namespaces, links and commands, `keeper` is the process that makes them
and whose end takes them away, `faults` are cuts, slow and lossy links, `agents` the agents of all
hosts, `cluster` the running lab, `serving` its servers, `database` its PostgreSQL, `slurm` a Slurm
of its hosts, `limits` their cgroups, `cli` the commands. `ranks` send what the ranks
of a job send, `measure` writes their programs. docs/lab.md.
"""
