"""The queue: who is next, who may go ahead, and what is left for the others.

Inside: the scheduling cycle, the order of the queue, EASY, FIFO and conservative
backfill, jobs on idle spares, jobs that wait as others before them do, verdicts.
Enters: a state and what is free. Leaves: starts, reservations and a verdict for each job.
"""
