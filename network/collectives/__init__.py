"""What collective libraries are told of a placement.

Enters: a gang on hosts and the bytes of its axes. Leaves: NCCL's settings for each axis (nccl.py),
and the all-reduce of one axis as a program of single ranks for MSCCL (msccl.py).
"""
