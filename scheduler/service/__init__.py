"""The gRPC service: messages in, commands to the writer, messages out.

Inside: rpc, a servicer class per subject; the backend that they share, with threads for
questions and for long answers; pages of lists; errors with details for programs; consistency of
reads, interceptors and metrics of calls.
Enters: requests of callers whom access has let in. Leaves: responses; it decides nothing.
"""
