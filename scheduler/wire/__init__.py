"""Between messages of scheduler.v1 and values of the core: nothing else sees both.

Inside: jobs and their specifications, hosts, tenants, windows, reasons, the status;
lists with their filters, orders and pages; update masks.
Enters: messages, which are never trusted. Leaves: values, or a located refusal.
"""
