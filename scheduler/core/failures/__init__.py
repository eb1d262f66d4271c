"""What to do when hosts fail: the ladder of ways back, storms, retries, prices."""
