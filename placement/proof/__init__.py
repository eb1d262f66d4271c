"""Branch and price: lower bounds that are raised until they meet a layout.

Enters: a grid, capacities, and patterns of a good layout. Leaves: `Prover`, whose bound rises by
rounds of work: master, pricing, MIR cuts and Lagrangian bounds from rounded duals (master.py,
node.py), branching (branching.py), and provers of two relaxations side by side (cell_proofs.py).
See docs/engine.md, "The proof".
"""
