"""The server's side of agents: gangs are launched, watched and stopped as the log says.

Inside: a process of its own that holds the streams of all agents and hears their beats (gateway,
frames), this side of it (sessions); what becomes of each gang (gang, launcher) from its first
order (orders) to its last rank (ending), its checkpoints and hangs on the way; hosts out of reach
(cut_off); logs of ranks on their way to a caller (tails); what brings agents up (substrate, local,
slurm, kubernetes).
Enters: changes of jobs, words of agents. Leaves: words to agents, and reports to the writer: a gang
was launched, a rank failed, a host was lost, a checkpoint was saved, a job has ended.
"""
