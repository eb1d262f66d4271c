"""Agents in the pods of a Kubernetes cluster, and gangs whose pods others have made.

Inside: calls of its API in plain JSON (api), a copy of what a watch shows (mirror), what the pods
of agents are (pods), which of them there should be (agents), gangs of JobSet and the like that are
to be bound (adopted, adoption). Only api imports the client library, which is an extra.
Enters: the state, nodes and pods as the API server has them. Leaves: pods, bindings, and commands
about hosts and jobs to the writer.
"""
