"""Commands that need no server: they read files and print answers.

`place` runs the scheduler on a state made of its fabric; `estimate` and `checkpoint` count step
times and intervals (`checkpoint_intervals`), `hall` what power feeds (`hall_plan`); `fabric`
converts networks, `importing` jobs of training frameworks.
`formats` and `nccl_file` write a placement for launchers, of `place` and of live jobs alike.
In: what people write (`scheduler.files`). Out: text, JSON, files, and exit codes.
"""
