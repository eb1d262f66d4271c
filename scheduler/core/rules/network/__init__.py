"""Rules about the network between hosts, which decide and commit ask alike.

Inside: what uplinks carry and who may cross them (links), gangs that share them (neighbours), the
step of a gang (gang_step), and gangs whose step degraded links lengthen (slow_gangs).
Enters: a state. Leaves: hosts that may be used, seconds of a step, reports of slow gangs.
"""
