"""A replay written down while it runs, and gone on with."""
