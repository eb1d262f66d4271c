"""What a placement costs: what crosses each tier, where each axis runs, how long a step takes.

Enters: a gang on hosts. Leaves: bytes and seconds, counted from ranks and domains alone, by
which every search and bound is checked.
"""
