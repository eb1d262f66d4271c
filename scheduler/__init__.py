"""The scheduler: a pure core, and around it a store, a service and a command line."""
