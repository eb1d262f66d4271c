"""The streams of agents: a process of its own holds all of them and hears their beats (gateway);
the server talks to it (sessions) in frames.
"""
