"""Checkpoints: how often to write them, and what an interval is worth."""
