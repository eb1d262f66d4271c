"""Branch and price: lower bounds that are raised until they meet a layout.

Enters: a grid, capacities, and patterns of a good layout. Leaves: `Prover`, whose bound rises by
rounds of work: master, pricing, MIR cuts and Lagrangian bounds from rounded duals (master.py,
node.py), branching (branching.py), provers of other grids (cell_proofs.py, split_groups.py), and
proofs as a certificate has them (written.py).
See docs/engine.md, "The proof".
"""
