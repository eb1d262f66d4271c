"""Maintenance windows and calendar reservations."""
