"""Many replays: side by side (compare), or over a grid (sweep)."""
