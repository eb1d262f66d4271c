"""Rules that decide and commit ask alike, each in one place.

Inside: which hosts windows close and when (calendar), affinity between gangs, crash
loops, evaluation of hosts and lemons, gangs on retiring hosts, how large a job is and a resize,
checkpoints, copies of a gang's state in the memory of its hosts: which hosts have them
(peer_copies), and what becomes of them (memory_copies).
Enters: a state, a job, a time. Leaves: answers; nothing is changed here.
"""
