"""Why a job waits, what would change it, how many would start."""
