"""Lists: which items a request wants, in which order, and a page of them.

Inside: filters (AIP-160), the order and the tokens of pages (paging), and the lists of jobs,
hosts, tenants and windows (listing).
Enters: a state and the fields of a list request. Leaves: the items of a page, and the next token.
"""
