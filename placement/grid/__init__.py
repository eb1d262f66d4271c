"""Gangs whose blocks form a grid of rows x slots: what zones cut of it.

Enters: axis traffic of a request. Leaves: `BlockGrid` with convex costs of a zone's share
(block_grid.py), the doubled cut of a layout (layout.py), the least cut of n cells of a row
(isoperimetry.py), and coarser grids in which an axis stays whole (groups.py).
See docs/engine.md, "The problem".
"""
