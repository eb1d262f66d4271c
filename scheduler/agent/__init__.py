"""The agent: one process a host, which starts, watches and stops ranks at a server's word.

Inside: the process itself (program), the session with the server and its two clocks (session,
agent), where the host says that it is (place), copies of ranks' state in its memory
(copies); the processes of attempts (ranks), and checks of the host (checks).
Enters: words of the server (scheduler.v1.agent). Leaves: processes, and what became of them.
"""
