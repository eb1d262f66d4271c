"""Gangs that grow and shrink by whole replicas."""
