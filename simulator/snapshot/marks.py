"""What a snapshot is compared with before anybody goes on from it."""

from __future__ import annotations

from simulator.conserved import Conserved
from simulator.launcher import Launcher
from simulator.metrics import Metrics
from simulator.snapshot.resume import fields_digest
from simulator.story import Story
from simulator.story.timeline import Timeline
from simulator.study.options import code_digest
from simulator.timing import Flat, Modelled

KINDS = (Launcher, Flat, Modelled, Metrics, Conserved, Story, Timeline)


def fields() -> str:
    """Of what is kept: with another one, nothing can be read."""
    return fields_digest(*KINDS)


def marks() -> dict[str, str]:
    """Of what is kept, and of the code, which may decide otherwise."""
    return {"fields": fields(), "code": code_digest()}
