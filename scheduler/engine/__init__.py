"""What drives the core: one writer, one planning loop, one feed.

Inside: the writer, through which every change goes in order; proposals, which wait for
it; planning beside it; mirrors, processes that hold the same state; the feed of changes and
the history behind it; snapshots; replicas, of which one leads.
Enters: commands. Leaves: durable events, in order, to everyone who watches.
"""
