"""What `muster place` and `muster estimate` answer, as JSON, as pages for people, and
as files for what starts the ranks.

Inside: answers, which puts a page together, with what surrounds a placement (around), copies of its
state (copies) and its seconds (steps, and their tables in step_tables); formats and nccl_file, for
launchers, of live jobs alike.
Enters: a Question and an Answer of the placement. Leaves: strings and JSON.
"""
