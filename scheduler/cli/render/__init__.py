"""Answers as text: what the commands print.

Inside: one module a kind of answer (messages of jobs and hosts, reasons, status, windows, links),
`place/` for answers of the placement itself, and tables, bytes and durations as people read them
(tables, text).
Enters: values or messages. Leaves: strings; JSON is written from the same values.
"""
