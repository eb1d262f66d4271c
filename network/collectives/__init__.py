"""Collectives as message schedules: what crosses, how long it takes, which suits an axis.

Enters: a gang on hosts and the bytes of its axes. Leaves: what NCCL should take for each axis
(recommend.py), and would by itself (nccl.py). Schedules list every message, and bytes and seconds
are counted from them (schedules.py), never looked up.
"""
