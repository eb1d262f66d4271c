"""What people write, read strictly: every error names file, line and field.

Inside: job, tenants, windows and fabric files, YAML 1.2 without surprises, times and
durations, files of other programs (fabrics, health) and of training frameworks
(importers), certificates, and files written whole or not at all.
Enters: text. Leaves: values of the core, or InputError.
"""
