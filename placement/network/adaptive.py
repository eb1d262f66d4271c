"""Adaptive routing in the long run: switches shift traffic from full cables to others.

Packets are small against flows, so what counts is the share of its traffic that a
switch gives each cable. From equal shares, every round moves shares away from cables
that carry more than their siblings, or that lead to fuller ones (back-pressure); the
best round is kept, so the result is never worse than even spreading.
"""

from __future__ import annotations

import numpy as np

from placement.fabric.tree import Ints
from placement.network.flows import Floats
from placement.network.fluid import CableLoads, Weights, even, spread
from placement.network.reachability import domain_of
from placement.network.wiring import Links

ROUNDS = 12
PATIENCE = 2  # rounds without a gain worth having, after which none is expected
GAIN = 1e-3
PULL = 0.5  # of the way to equal pressure in one round; more of it oscillates


def settled(links: Links, source: Ints, target: Ints, sizes: Floats) -> Weights:
    """Shares under which the fullest cable carries least, as far as the rounds find.

    On a whole fabric even shares are equally full already and one round ends it.
    """
    weights = best = even(links)
    least, idle_rounds = np.inf, 0
    for _ in range(1 if links.is_whole else ROUNDS):
        loads = spread(links, source, target, sizes, weights)
        fullest = max((load.max(initial=0.0) for load in (*loads.up, *loads.down)), default=0.0)
        idle_rounds = 0 if fullest < least * (1 - GAIN) else idle_rounds + 1
        if fullest < least:
            least, best = fullest, weights
        if idle_rounds == PATIENCE:
            break
        weights = _shifted(links, loads, weights)
    return best


def _shifted(links: Links, loads: CableLoads, weights: Weights) -> Weights:
    """Shares after one round of moving away from pressure."""
    ups: list[Floats] = []
    downs: list[Floats] = []
    beyond = np.zeros(links.layers[-1].switch_count)  # fullest cable above a switch
    for low in range(len(links.layers) - 2, -1, -1):
        ports = links.layers[low].uplinks
        pressure = np.maximum(loads.up[low], beyond[ports.upper])
        ups.insert(0, _eased(weights.up[low], pressure, ports.lower))
        beyond = np.zeros(links.layers[low].switch_count)
        np.maximum.at(beyond, ports.lower, pressure)
    beyond = np.zeros(links.layers[0].switch_count)  # fullest cable below a switch
    for low, layer in enumerate(links.layers[:-1]):
        ports = layer.uplinks
        pressure = np.maximum(loads.down[low], beyond[ports.lower])
        siblings = ports.upper * len(layer.domains) + domain_of(layer)[ports.lower]
        downs.append(_eased(weights.down[low], pressure, siblings))
        beyond = np.zeros(links.layers[low + 1].switch_count)
        np.maximum.at(beyond, ports.upper, pressure)
    return Weights(tuple(ups), tuple(downs))


def _eased(weight: Floats, pressure: Floats, siblings: Ints) -> Floats:
    """Less weight where pressure is above the siblings' mean, more where below."""
    _, group = np.unique(siblings, return_inverse=True)
    if not len(group):
        return weight
    mean = np.bincount(group, pressure) / np.bincount(group)
    ratio = np.divide(
        mean[group], pressure, out=np.ones_like(pressure), where=(pressure > 0) & (mean[group] > 0)
    )
    eased: Floats = np.clip(weight * ratio**PULL, 1e-3, 1e3)
    return eased
