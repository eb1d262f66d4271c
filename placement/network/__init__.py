"""The backend network switch by switch, and what routing makes of a placement.

Enters: a fabric, and a gang on hosts. Leaves: switches and cables (`links`), what is left
of them after failures (`without`), bandwidth proved by maximum flow (`proofs`), and the
busiest link of a step and the time that it costs:

    flows = flows_of(fabric, request, placement.hosts)
    congestion = route(links(fabric), flows, parse_routing("e-ecmp:16"), seed=1)
    congestion.busiest.name, congestion.seconds, congestion.slowdown

docs/fabric.md says what is modelled and what is not.
"""

from placement.network.failures import without
from placement.network.flows import Flows, flows_of, merge_flows
from placement.network.maxflow import Proof, proofs
from placement.network.routing import Congestion, Kind, Routing, parse_routing, route
from placement.network.wiring import Links, Striping, links

__all__ = [
    "Congestion",
    "Flows",
    "Kind",
    "Links",
    "Proof",
    "Routing",
    "Striping",
    "flows_of",
    "links",
    "merge_flows",
    "parse_routing",
    "proofs",
    "route",
    "without",
]
