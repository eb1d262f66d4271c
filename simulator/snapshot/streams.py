"""The failures of a replay that may have been gone on with under other ones.

A stream follows from its text and its seed, so it is read again and not written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from simulator.failures import Outage, merged
from simulator.traces.record import SECOND_NS

LONGEST_NS = 1_000 * 86_400 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Stream:
    """Failures in force from `from_ns` after the first submit, when `past` outages of the
    stream before had come. `digest`: of what the text and the files it names say."""

    failures: str | None
    scale: float
    seed: int
    digest: str = ""
    from_ns: int = 0
    past: int = 0


Open = Callable[[Stream], Iterable[Outage]]


def outages(streams: Sequence[Stream], fresh: Open) -> Iterator[Outage]:
    """Those of the last stream, after what the ones before it left. `fresh`: a stream as it
    begins."""
    found = iter(fresh(streams[0]))
    for stream in streams[1:]:
        found = _from_there_on(found, stream, fresh(stream))
    return found


def _from_there_on(
    before: Iterator[Outage], stream: Stream, fresh: Iterable[Outage]
) -> Iterator[Outage]:
    """Hosts that are down come back when they would have; nothing else of `before` comes.

    A repair more than 1,000 days off does not come: a stream may have none at all.
    """
    down: dict[str, Outage] = {}
    for outage in islice(before, stream.past):
        if outage.is_down:
            down[outage.host] = replace(outage, time_ns=stream.from_ns)
        else:
            down.pop(outage.host, None)
    late = (replace(o, time_ns=o.time_ns + stream.from_ns) for o in fresh)
    pending = [*down.values(), *_repairs(before, set(down), stream.from_ns + LONGEST_NS)]
    yield from islice(merged([pending, late]), len(down), None)


def _repairs(before: Iterator[Outage], down: set[str], until_ns: int) -> Iterator[Outage]:
    """The next repair of each of these hosts."""
    if not down:
        return
    for outage in takewhile(lambda o: o.time_ns < until_ns, before):
        if not outage.is_down and outage.host in down:
            yield outage
            down.discard(outage.host)
            if not down:
                return
