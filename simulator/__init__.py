"""The scheduler on a virtual clock: traces and failures in, an event log out.

The simulator swaps the clock and the launcher, never the policy: every decision
comes from the four functions of `scheduler.core` that the live service calls.
"""
