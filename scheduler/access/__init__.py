"""Who may do what: callers and their roles, tokens, certificates, limits."""
