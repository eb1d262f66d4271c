"""Commands about jobs and their tenants, which ask a server.

`jobs` submits, lists, explains, ends and watches, `update` changes what waits, `capacity` says what
would fit and defragments, `quotas` shows tenants, `accounting` sums up what was used. Each module
has a `register(app)`.
In: arguments and job files. Out: RPCs by `scheduler.client`, printed by `cli.render`.
"""
