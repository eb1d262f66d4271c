"""What the ranks of a job import: `from muster import progress`. Standard library alone, but for
`structs`, of which the values of all other packages are made.
"""
