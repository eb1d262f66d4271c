"""How good placements are, how fast, and against whom."""
