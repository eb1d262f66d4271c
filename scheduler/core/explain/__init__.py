"""Answers that change nothing: why a job waits, and what if.

Inside: the reason of each waiting job and the obstacles behind it, the dry run, what-ifs and
their conditions, how many jobs of a size would start, what windows mean to a job.
Enters: a state, or a copy in which conditions hold. Leaves: Reason, DryRun, WhatIf, Slots.
"""
