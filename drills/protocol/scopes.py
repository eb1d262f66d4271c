"""All scopes of both searches."""

from __future__ import annotations

import logging

from drills.protocol import launch_scopes, leader_scopes
from drills.protocol.launches import Launches, LaunchScope
from drills.protocol.leaders import Leaders, Scope
from drills.protocol.search import Found, search
from drills.protocol.stepped import stepped_clock

SCOPES: tuple[Scope | LaunchScope, ...] = (
    *leader_scopes.QUICK,
    *leader_scopes.WIDE,
    *launch_scopes.QUICK,
    *launch_scopes.WIDE,
)


def search_scope(scope: Scope | LaunchScope, cpu_s: float, settle_every: int) -> Found:
    logging.disable(logging.CRITICAL)
    if isinstance(scope, Scope):
        return search(Leaders(scope), most_cpu_s=cpu_s, settle_every=settle_every)
    with stepped_clock():
        return search(Launches(scope), most_cpu_s=cpu_s, settle_every=settle_every)
