"""Search one scope, in a process of its own: what `__main__` defines no such process can load."""

from __future__ import annotations

import logging

from drills.protocol.launches import Launches, LaunchScope
from drills.protocol.leaders import Leaders, Scope
from drills.protocol.search import Found, search
from drills.protocol.stepped import stepped_clock


def search_scope(scope: Scope | LaunchScope, cpu_s: float, settle_every: int) -> Found:
    logging.disable(logging.CRITICAL)
    if isinstance(scope, Scope):
        return search(Leaders(scope), most_cpu_s=cpu_s, settle_every=settle_every)
    with stepped_clock():
        return search(Launches(scope), most_cpu_s=cpu_s, settle_every=settle_every)
