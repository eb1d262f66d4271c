"""An OpenID Connect issuer on this machine: discovery, keys, a page to sign in at, codes with PKCE.

with FakeIssuer() as issuer:
    text = issuer.token(email="ada@example.org", groups=["vision"])
    auth_file.write_text(issuer.section(rules))
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import secrets
import ssl
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CLIENT = "muster"
SECRET = "a secret of the client"
_RSA = [rsa.generate_private_key(65_537, 2_048) for _ in range(2)]
_SHORT = rsa.generate_private_key(65_537, 1_024)

Claims = dict[str, Any]


class FakeIssuer:
    """`users`: claims by name, of whom the page at /authorize lets choose. `wrong`: claims of the
    next tokens. `discovery`: what it says of itself instead. `shown`: its certificate. `asked`:
    paths, in their order.
    """

    def __init__(
        self, *, secret: str = "", host: str = "127.0.0.1", shown: trustme.LeafCert | None = None
    ) -> None:
        self.users: dict[str, Claims] = {}
        self.wrong: Claims = {}
        self.discovery: Claims = {}
        self.asked: list[str] = []
        self.is_down = False
        self.may_answer = threading.Event()  # until it is set, whoever asks waits
        self.may_answer.set()
        self.secret = secret
        self.ids = ["k1"]
        self.elliptic = ec.generate_private_key(ec.SECP256R1())
        self._codes: dict[str, Claims] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._handle({})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                self._handle(dict(parse_qsl(body)))

            def _handle(self, form: dict[str, str]) -> None:
                parts = urlsplit(self.path)
                issuer.asked.append(parts.path)
                issuer.may_answer.wait(60)
                query = {k: v[0] for k, v in parse_qs(parts.query).items()}
                status, headers, body = issuer.answer(
                    parts.path, query, form, self.headers.get("authorization", "")
                )
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if shown is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            shown.configure_cert(context)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if shown else 'http'}://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> FakeIssuer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def section(self, rules: Sequence[str], more: str = "") -> str:
        """The rows of an auth file."""
        listed = "".join(f"    - {rule}\n" for rule in rules)
        return f"oidc:\n  issuer: {self.url}\n  client_id: {CLIENT}\n{more}  rules:\n{listed}"

    def claims(self, **changed: Any) -> Claims:
        """None takes a claim away."""
        now = int(time.time())
        plain = {"iss": self.url, "aud": CLIENT, "sub": "u-1", "iat": now, "exp": now + 300}
        return {key: value for key, value in (plain | changed).items() if value is not None}

    def token(
        self,
        *,
        algorithm: str = "RS256",
        kid: str | None = None,
        key: Any = None,
        header: Claims | None = None,
        **claims: Any,
    ) -> str:
        """An ID token, signed by the newest key unless another is given."""
        kid = kid if kid is not None else self.ids[-1] if algorithm != "ES256" else "e1"
        if key is None:
            key = self.elliptic if algorithm == "ES256" else key_of(kid)
        names = {"kid": kid} | (header or {})
        return jwt.encode(
            self.claims(**claims), key, algorithm, {k: v for k, v in names.items() if v}
        )

    def public_pem(self) -> bytes:
        public = key_of(self.ids[-1]).public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def rotate(self, *, keep: bool = False) -> None:
        """Sign by another key; `keep`: the old one is still among the keys."""
        new = f"k{int(self.ids[-1][1:]) + 1}"
        self.ids = [*self.ids, new] if keep else [new]

    def answer(
        self, path: str, query: dict[str, str], form: dict[str, str], authorization: str
    ) -> tuple[int, dict[str, str], bytes]:
        if self.is_down:
            return 503, {}, b"down"
        match path:
            case "/.well-known/openid-configuration":
                return _json(self._discovery())
            case "/jwks":
                return _json({"keys": self._keys()})
            case "/authorize" if not form:
                return self._page(query)
            case "/authorize":
                return self._granted(query, form["user"])
            case "/token":
                return self._token(form, authorization)
        return 404, {}, b""

    def authorize(self, address: str, user: str) -> dict[str, str]:
        """What a user who chooses `user` brings back, by the address that the console made."""
        query = dict(parse_qsl(urlsplit(address).query))
        _, headers, _ = self._granted(query, user)
        return dict(parse_qsl(urlsplit(headers["location"]).query))

    def _discovery(self) -> Claims:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
        } | self.discovery

    def _keys(self) -> list[Claims]:
        """The ones that count, and others that must not."""
        made = [_jwk(key_of(kid).public_key(), kid) for kid in self.ids]
        plain = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.elliptic.public_key()))
        return [
            *made,
            plain | {"kid": "e1", "use": "sig"},
            _jwk(_SHORT.public_key(), "short"),
            _jwk(_RSA[0].public_key(), "enc") | {"use": "enc"},
            {"kty": "oct", "k": "c2VjcmV0", "kid": "oct", "alg": "HS256"},
            {"kty": "RSA", "kid": "broken"},
        ]

    def _page(self, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        form = "".join(
            f'<form method="post" action="/authorize?{html.escape(urlencode(query))}">'
            f'<input type="hidden" name="user" value="{name}"><button>{name}</button></form>'
            for name in self.users
        )
        return (
            200,
            {"content-type": "text/html"},
            f'<link rel="icon" href="data:,"><h1>fake issuer</h1>{form}'.encode(),
        )

    def _granted(self, query: dict[str, str], user: str) -> tuple[int, dict[str, str], bytes]:
        assert (query["client_id"], query["response_type"]) == (CLIENT, "code")
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = {"query": query, "user": user}
        back = urlencode({"code": code, "state": query["state"], "iss": self.url})
        return 303, {"location": f"{query['redirect_uri']}?{back}"}, b""

    def _token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str], bytes]:
        if self.secret:
            pair = f"{CLIENT}:{self.secret.replace(' ', '+')}"
            if authorization != "Basic " + base64.b64encode(pair.encode()).decode():
                return _json({"error": "invalid_client"}, 401)
        elif form.get("client_id") != CLIENT:
            return _json({"error": "invalid_client"}, 401)
        made = self._codes.pop(form.get("code", ""), None)
        if made is None:
            return _json({"error": "invalid_grant", "error_description": "Code not valid"}, 400)
        query = made["query"]
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (challenge, form["redirect_uri"]) != (query["code_challenge"], query["redirect_uri"]):
            return _json({"error": "invalid_grant", "error_description": "PKCE"}, 400)
        text = self.token(**(self.users[made["user"]] | {"nonce": query["nonce"]} | self.wrong))
        return _json({"access_token": "x", "token_type": "Bearer", "id_token": text})


def unsigned(claims: Claims) -> str:
    """A token of algorithm none."""
    return jwt.encode(claims, None, "none", {"kid": "k1"})


def signed_by_hand(claims: Claims, secret: bytes) -> str:
    """HS256 by any secret, which libraries refuse to make of a public key."""
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "k1"}, claims]
    text = ".".join(_part(json.dumps(part).encode()) for part in parts)
    return text + "." + _part(hmac.digest(secret, text.encode(), "sha256"))


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def key_of(kid: str) -> rsa.RSAPrivateKey:
    return _SHORT if kid == "short" else _RSA[int(kid[1:]) % 2]


def _jwk(key: rsa.RSAPublicKey, kid: str) -> Claims:
    made: Claims = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key))
    return made | {"kid": kid, "use": "sig", "alg": "RS256"}


def _json(body: Claims, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json"}, json.dumps(body).encode()
