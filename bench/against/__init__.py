"""Replays beside another job-trace simulator, on the same jobs in the same run."""
