"""What happened in a replay, folded from its event log as it is written."""

from simulator.story.story import Story

__all__ = ["Story"]
