"""What goes where: hosts, bytes and cuts; nothing of queues, time or RPC.

The one entry point is `placement.place.place`. Values in, a value out: the same
fabric, free hosts, request and limits give the same answer, byte for byte.
"""
