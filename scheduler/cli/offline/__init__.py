"""Commands that need no server: they read files and print answers.

`place` runs the scheduler on a state made of its fabric; `estimate` and `checkpoint` count step
times and intervals, `hall` what power feeds (`hall_plan`); `fabric` converts networks, `job_files`
jobs of training frameworks.
In: what people write (`scheduler.files`). Out: text, JSON, files, and exit codes.
"""
