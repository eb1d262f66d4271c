"""What is known of an uplink that is not plainly up and open to all gangs."""

from __future__ import annotations

from msgspec import Struct

from placement.fabric.links import FULL
from scheduler.core.model.lifecycle import LinkUse


class LinkRecord(Struct, frozen=True):
    """`share`: what it carries of what it was built for, as last reported at `share_ns` with
    `detail`. `use`: who may cross it, by an operator's word of `use_ns` with `reason`."""

    share: float = FULL
    share_ns: int = 0
    detail: str = ""
    use: LinkUse = LinkUse.OPEN
    use_ns: int = 0
    reason: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is as if nobody had said anything of it."""
        return self.share == FULL and self.use is LinkUse.OPEN

    @property
    def since_ns(self) -> int:
        return max(self.share_ns, self.use_ns)


PLAIN = LinkRecord()
