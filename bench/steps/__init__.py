"""Seconds of training steps: the model, its simulation, packets, routes and stragglers."""
