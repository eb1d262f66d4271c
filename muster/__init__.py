"""What the ranks of a job import: `from muster import progress`. Standard library alone."""
