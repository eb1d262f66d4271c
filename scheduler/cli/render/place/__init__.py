"""What `muster place` and `muster estimate` answer, as JSON and as pages for people.

Inside: answers, which puts a page together, with what surrounds a placement (around), copies of its
state (copies) and its seconds (steps, and their tables in step_tables).
Enters: a Question and an Answer of the placement. Leaves: strings and JSON.
"""
