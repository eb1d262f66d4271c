"""What becomes of one attempt of a job on its hosts, as the server sees it.

Inside: how far each host is (gang), what agents are told (orders) and the log learns (reports), the
newest checkpoint (checkpoints), steps and their stops (step_watch, hang, slow_hosts), and the way
out (ending). The launcher, one floor up, asks and acts.
"""
