"""Login by OpenID Connect: ID tokens of an issuer as bearer tokens, and how a console gets one.

Inside: the section `oidc` of the auth file with its rules from claims to roles, what the issuer
says of itself and its keys, the validation of ID tokens, and the exchange of a code for one.
Enters: a bearer token, or a code with its PKCE verifier. Leaves: a Caller; or UNAUTHENTICATED,
PERMISSION_DENIED.
"""
