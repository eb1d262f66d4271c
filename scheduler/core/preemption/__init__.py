"""Who is sent away for whom."""
