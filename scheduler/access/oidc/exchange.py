"""The exchange of an authorization code for an ID token (RFC 6749, with PKCE by RFC 7636).

A page cannot make it: its policy forbids other origins, and a secret would not be one there.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, field
from urllib.parse import quote_plus

from scheduler.access.oidc.http import IssuerFailed, ask
from scheduler.access.oidc.id_tokens import IdTokens
from scheduler.access.oidc.issuer import IssuerMetadata
from scheduler.access.oidc.section import OidcKeys
from scheduler.files.errors import InputError
from scheduler.identity import Caller
from scheduler.service.errors import starting, unauthenticated

_KEYS_S = 5.0  # to wait for keys that have changed
_BASIC, _POST = "client_secret_basic", "client_secret_post"

log = logging.getLogger("muster.access")


@dataclass(frozen=True, slots=True)  # the code stays out of its repr
class CodeGrant:
    """Authorization code at the end of a sign-in, and the secrets that began it."""

    code: str = field(repr=False)
    verifier: str = field(repr=False)
    nonce: str = field(repr=False)
    redirect_uri: str


def exchange(id_tokens: IdTokens, grant: CodeGrant) -> tuple[str, Caller]:
    """Exchange the authorization code for an ID token, and return it with its caller. Blocks.
    Raises: ApiError."""
    section = id_tokens.section()
    if section is None:
        raise unauthenticated("this server has no sign-in: its auth file has no oidc section")
    issuer = id_tokens.issuer(section)
    metadata = issuer.metadata()
    if metadata is None:
        raise starting(f"{section.issuer} has not answered yet: {issuer.problem or 'try again'}")
    try:
        form, headers = _request(section, metadata, grant)
        answer = ask(metadata.token_endpoint, section.ca, form, headers)
    except InputError as error:
        log.error("no sign-in by %s: %s", section.issuer, error)
        raise unauthenticated("the server cannot read its client secret; see its log") from None
    except IssuerFailed as error:
        log.warning("%s gave no ID token for a code: %s", section.issuer, error)
        raise unauthenticated(f"{section.issuer} gave no ID token: {error}") from None
    text = answer.get("id_token")
    if not isinstance(text, str):
        raise unauthenticated(f"{section.issuer} gave no ID token: is openid among the scopes?")
    return text, id_tokens.await_caller(text, grant.nonce, _KEYS_S)


def _request(
    section: OidcKeys, metadata: IssuerMetadata, grant: CodeGrant
) -> tuple[dict[str, str], dict[str, str]]:
    """Fields and headers. Raises: InputError for a secret that cannot be read."""
    form = {
        "grant_type": "authorization_code",
        "code": grant.code,
        "code_verifier": grant.verifier,
        "redirect_uri": grant.redirect_uri,
        "client_id": section.client_id,
    }
    secret = section.secret()
    if not secret:
        return form, {}
    if _POST in metadata.auth_methods and _BASIC not in metadata.auth_methods:
        return {**form, "client_secret": secret}, {}
    del form["client_id"]  # it is in the header
    pair = f"{quote_plus(section.client_id)}:{quote_plus(secret)}"
    return form, {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
