"""Calls about jobs.

Inside: submit, read, change, end and explain them (jobs), what their ranks have written (logs),
commands beside their ranks (channels), and what they have used (usage).
Enters: requests that name jobs, or ask for lists. Leaves: commands to the writer, and responses.
"""
