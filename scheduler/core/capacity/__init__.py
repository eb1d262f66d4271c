"""What could be had: hosts that are free, will be free, or could be freed.

Inside: the placer, free hosts over time (profile, outlook, host classes), pools of
spares, elastic gangs that grow or shrink, victims and what their
eviction frees, hosts for windows.
Enters: a state. Leaves: candidates with their price; who gets them is decided above.
"""
