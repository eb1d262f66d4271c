"""Trace files: one reader per format, one record for all of them."""
