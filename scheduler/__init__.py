"""The scheduler: a pure core, and around it a store, a service and a command line.

Rooms stand on each other, lower ones first (`make check` says so):

    core      what is decided: admit, decide, commit, apply over immutable values
    files     what people write: job, fabric, tenants, windows and health files; importers
    identity  who calls, in which role
    eventlog  the log, its snapshots and stores
    observe   counters, incidents, logs: what is measured, not how it is shown
    wire      messages of scheduler.v1 to values of the core and back
    engine    the single writer, the planning loop, the feed of changes, replicas
    service   the gRPC methods;  access: who may call them;  server: start and stop
    agent     what runs on every host and starts ranks;  launch: the server's side of it
    client    the service from Python;  cli: the command line
"""
