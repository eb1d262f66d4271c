"""Tenants: whose a job is, what each tenant may hold, holds and is owed.

Inside: full names for jobs that had none, quotas now and in time to come, guarantees that have
a shape (cells), fair share, spares on loan, what a specification may name, how tenants stand.
Enters: a state and its Tenants. Leaves: Allowance (how many hosts, and which) and orders.
"""
