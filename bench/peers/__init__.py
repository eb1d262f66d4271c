"""Other ways to place a gang: graph partitioners, and what schedulers ship."""
