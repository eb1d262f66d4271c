"""A running server under load: submits, watches, agents, launches, the console, Kubernetes."""
