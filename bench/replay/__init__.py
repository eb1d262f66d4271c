"""Replays: beside another simulator on the same jobs, and of long queues."""
