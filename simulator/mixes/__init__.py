"""Synthetic traces after the published job mixes of real clusters.

In: published counts, means, medians and GPU time of a cluster (`published`). Out: jobs in
submit order, drawn from a mix that has those figures. Nothing here is a log.

    published   what is published, and what is chosen where nothing is
    fit         a mix with the published figures
    generate    jobs drawn from it, arriving by the hours of a week; how far they reach
"""
