"""What the cluster is and does, as messages: everything that is not one job.

Inside: fabric, host records, links, tenants, windows, the status on one screen, usage for
accounting, and records of the audit log.
Enters: values of the core. Leaves: messages of v1, and back where requests have them.
"""
