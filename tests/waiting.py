"""How long tests wait for what other processes do.

A wait ends as soon as its condition holds, so patience costs a passing test nothing; a busy
machine takes several times as long as an idle one.
"""

#: By how much each limit of a wait is stretched: limits are what an idle machine needs.
PATIENCE = 5
