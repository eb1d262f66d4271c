"""Rules that decide and commit ask alike, each in one place.

Inside: which jobs are considered at all (eligibility), which hosts windows close and when
(calendar), affinity between gangs, crash loops, time limits, how large a job is and a resize,
copies of a gang's state in the memory of its hosts: which hosts have them (peer_copies), and
what becomes of them (memory_copies). hosts/ has the rules about single hosts, network/ those
about links and steps.
Enters: a state, a job, a time. Leaves: answers; nothing is changed here.
"""
