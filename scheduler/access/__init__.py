"""Who may do what: callers and their roles, tokens, certificates, limits.

Inside: the auth file and how it is edited (auth_file/), ID tokens (oidc/), TLS with
certificates that can be replaced, and how they are made for a start, authentication, the table of
methods and roles, limits of calls and streams, and what callers of one tenant can see.
Enters: metadata and certificates of a call. Leaves: a Caller, or UNAUTHENTICATED,
PERMISSION_DENIED, RESOURCE_EXHAUSTED.
"""
