"""Between messages of scheduler.v1 and values of the core: nothing else sees both.

Inside: jobs, their specifications, names and reasons, update masks, durations; in cluster/
everything that is not one job (fabric, hosts, links, tenants, windows, status, usage, audit);
in lists/ filters, orders and pages.
Enters: messages, which are never trusted. Leaves: values, or a located refusal.
"""
