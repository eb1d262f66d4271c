"""Hosts that stand by for failures: how many, whose, and who may use them.

policy    what the operator says: rates, how often a zone may run short
faults    what the log says: failures and repairs, and the rates that follow
pools     the spares of each zone, which its gangs share
refill    spares that were used are held again, those that are too many let go
outlook   what each zone survives, and what one more would buy
"""
