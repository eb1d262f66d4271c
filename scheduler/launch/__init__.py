"""The server's side of agents: gangs are launched, watched and stopped as the log says.

Inside: a process of its own that holds the streams of all agents, and this side of it (streams);
what becomes of each attempt (gangs), for all of which the launcher asks and acts; hosts that join,
or are out of reach (joining, cut_off); commands beside ranks, and their logs, on their way to a
caller (channels); what brings agents up (substrate, local, slurm, kubernetes).
Enters: changes of jobs, words of agents. Leaves: words to agents, and reports to the writer: a gang
was launched, a rank failed, a host was lost, a checkpoint was saved, a job has ended.
"""
