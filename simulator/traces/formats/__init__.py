"""A reader per trace format: lines in, jobs and bad records out, in the order of the file.

A new format is one file here and one line in simulator/traces/load.py. Readers share
`columns` (tables with a header), `jsonarray` (one array of objects) and `times` (points in
time and durations as they are written).
"""
