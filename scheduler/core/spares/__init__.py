"""Spares: hosts that stand by for failures, how many a zone holds and what they buy.

Inside: which spares are replenished and which are let go, the outlook of each zone, and the zones
that lack spares of a gang.
The rule is policies.spares, the fold over failures model.failure_rates, the pools and
loans are capacity.spare_pools and tenancy.spare_loans.
Enters: a state. Leaves: changes of spares in a plan; ZoneOutlook, SpareShortage.
"""
