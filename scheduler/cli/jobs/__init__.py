"""Commands about jobs and their tenants, which ask a server.

`jobs` submits, lists, explains, ends and watches, `by_name` changes, holds, cancels and awaits,
`capacity` says what would fit, defragments, and shows what tenants hold and have used. Each module
with commands has a `register(app)`.
In: arguments and job files. Out: RPCs by `scheduler.client`, printed by `cli.render`.
"""
