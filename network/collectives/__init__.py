"""Collectives as message schedules: what crosses, how long it takes, which suits an axis.

Enters: a gang on hosts and the bytes of its axes. Leaves: for each axis the algorithms that
could carry it, with the bytes that each sends over the outermost tier and its time (`advice`),
and what NCCL would choose by itself (nccl.py). Schedules list every message, and bytes and
seconds are counted from them (schedules.py), never looked up.
"""
