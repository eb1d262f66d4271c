"""Job mixes of large clusters as published, and traces like them."""
