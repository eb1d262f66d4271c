"""Answers as text and pictures: what the commands print.

Inside: one module a kind of answer (placements, reasons, status, steps, windows), and
tables, bytes and durations as people read them (text).
Enters: values or messages. Leaves: strings; JSON is written from the same values.
"""
