"""The queue: who is next, who may go ahead, and what is left for the others.

Inside: the scheduling cycle, what an order and a backfill rule answer, the policies made of
them and their registry, jobs on idle spares, jobs that wait as others before them, verdicts.
Enters: a state and what is free. Leaves: starts, reservations and a verdict for each job.
"""
