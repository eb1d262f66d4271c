"""What routing makes of a placement: the busiest link, and the time that it costs.

    flows = flows_of(fabric, request, placement.hosts)
    found = route(links(fabric), flows, parse_routing("e-ecmp:16"), seed=1)
    found.busiest.name, found.busiest.seconds, found.slowdown

docs/fabric.md says what is modelled and what is not.
"""

from placement.congestion.flows import Flows, flows_of, together
from placement.congestion.report import AxisLoad, Congestion, LayerLoad, LinkLoad
from placement.congestion.router import route
from placement.congestion.routing import Kind, Routing, parse_routing

__all__ = [
    "AxisLoad",
    "Congestion",
    "Flows",
    "Kind",
    "LayerLoad",
    "LinkLoad",
    "Routing",
    "flows_of",
    "parse_routing",
    "route",
    "together",
]
