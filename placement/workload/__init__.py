"""The job as traffic: how it is parallel, what it computes, what its ranks send to whom.

Enters: axes, model, batch and training, or explicit bytes. Leaves: `Request`, and the answers that
placement gives (request.py), bytes per step of each axis and who exchanges them (volumes.py,
traffic.py), parameters and FLOPs (flops.py), memory of a GPU (memory.py), segments (segments.py),
and the same gang with other numbers of replicas (replicas.py).
"""
