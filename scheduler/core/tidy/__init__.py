"""Moves that make room: proposals, and doing them by policy."""
