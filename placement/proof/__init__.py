"""Branch and price: lower bounds that are raised until they meet a layout.

Enters: a grid, capacities, and patterns of a good layout. Leaves: `Prover`, whose bound rises by
rounds of work: master and pricing (master.py, node.py), MIR cuts (cuts.py), branching
(branching.py), Lagrangian bounds from rounded duals (duals.py), and provers of several relaxations
side by side (cell_proofs.py, split_groups.py).
See docs/engine.md, "The proof".
"""
