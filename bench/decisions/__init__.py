"""How long one decision takes: a long queue, windows, restarts."""
