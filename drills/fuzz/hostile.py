"""Doors at which somebody may mean harm: what ranks write, agents' streams, ID tokens, the console,
rows of a database. Nothing that comes in there may end more than what brought it."""

from __future__ import annotations

import asyncio
import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import StringValue
from starlette.requests import Request

from drills.fuzz.mutate import Messages
from drills.fuzz.targets import STATE, Target
from scheduler.access.oidc import http, issuer
from scheduler.access.oidc.id_tokens import IdTokens
from scheduler.access.oidc.section import OidcKeys, RuleKeys
from scheduler.agent import agent
from scheduler.agent.ranks import ranklog
from scheduler.agent.ranks.attempt import HostAttempt, Key
from scheduler.agent.ranks.rank_times import TimesOfRanks
from scheduler.console.connect import ConnectService
from scheduler.console.live import LiveMaps, LiveStream
from scheduler.console.session import written
from scheduler.core import State
from scheduler.core.fold.apply import apply
from scheduler.eventlog import codec, ended_jobs, snapshots
from scheduler.eventlog.recovery import replayed
from scheduler.eventlog.store import StoreError
from scheduler.identity import ANYBODY
from scheduler.launch.streams.frames import Frame, FrameKind
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.observe.supervision import Heartbeats
from scheduler.service.errors import ApiError
from scheduler.v1 import agent_pb2, service_pb2
from tests.build import admitted, cancel, submit
from tests.unit.launch.test_launcher import World, gang

_LATIN: Final = "latin-1"  # every byte is a character of it, so that seeds are texts
_KEY: Final = agent_pb2.AttemptKey(job_uid="uid-a", attempt=1)
_URL: Final = "https://sso.example.org"
_SERVICE = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
_ORDER: Final = {"ranks": [{"rank": 0}, {"rank": 1}], "env": {"LOCAL_WORLD_SIZE": "2"}, "user": ""}


class RefusedInput(Exception):
    """How an entry point refuses an input without an exception."""


def hostile() -> Iterator[Target]:
    """Return all hostile inputs, in a fixed order."""
    yield Target("rank times", _texts(_TIMES), _times, encoding=_LATIN)
    yield Target("rank stacks", ['File "train.py", line 3 in step\n'], _stacks)
    yield Target("rank log", ["step 3\nTraceback\nRuntimeError: CUDA\n", "é\n" * 900], _log)
    yield Target("rank exits", _EXITS, _exits, weight=2)
    yield _Words("agent word", _texts(*_WORDS), _word, (DecodeError,), encoding=_LATIN, weight=3)
    yield Target("id token", [_signed(_claims())], _token, (ApiError,), weight=2)
    yield Target("id claims", [json.dumps(_claims())], _claimed, (ApiError, RefusedInput), weight=2)
    yield Target("oidc issuer", [_DISCOVERY], _issuer, (http.IssuerFailed,), weight=2)
    words = ("application/json", "application/connect+json", "gzip", "identity", "WatchJobs")
    yield Target("connect request", _CONNECT, _connect, (RefusedInput,), words, weight=3)
    yield Target("console live", ["", "key=a&after_version=3"], _live, (RefusedInput,))
    body = zlib.decompress(_ended().body).decode()
    yield Target("ended job", [body], _ended_job, (ValueError,), weight=2)
    row = json.dumps(codec.encode(admitted(STATE, submit("n"))[0]))
    yield Target("log row", [row], _log_row, (StoreError, codec.UndecodableEvent), weight=2)


def _texts(*raw: bytes) -> Sequence[str]:
    return [each.decode(_LATIN) for each in raw]


# --- what ranks write -----------------------------------------------------------------------------

_TIMES: Final = b"".join(struct.pack("=qd", 8 + slot, 0.5) for slot in range(128))
_EXITS: Final = [
    '{"rank": 0, "code": 1, "signal": 0, "monotonic_ns": 17}\n{"over": true}\n',
    '{"rank": 1, "code": 0, "signal": 9, "monotonic_ns": 17}\n',
]


def _times(path: Path) -> object:
    """Up to the message of the agent."""
    times = TimesOfRanks([path, path])
    times._newest = 0
    attempt: Any = mock.Mock(key=Key("uid-a", 1))
    return agent._step_times(attempt, times.look(20.0)).SerializeToString()


def _stacks(path: Path) -> object:
    return ranklog.read_rank_file(path, 1_000)


def _log(path: Path) -> object:
    return agent_pb2.Exited(log_tail=ranklog.tail(path)).SerializeToString()


def _exits(path: Path) -> object:
    """As an agent that starts again finds it, up to its Hello."""
    folder = path.parent / "uid-a.1"
    folder.mkdir(exist_ok=True)
    (folder / "order.json").write_text(json.dumps(_ORDER))
    (folder / "supervisor").write_text("1 1")
    for name in ("started", "exits", "refused"):
        (folder / name).write_bytes(path.read_bytes())
    attempt = HostAttempt.from_folder(folder)
    assert attempt is not None
    exits = [agent._exited(attempt, done) for done in attempt.exits]
    agent_pb2.Refused(reason=attempt.refusal).SerializeToString()
    return agent_pb2.AttemptStatus(exits=exits).SerializeToString()


# --- agents' streams ------------------------------------------------------------------------------

_WORDS: Final = [
    agent_pb2.SessionRequest(**word).SerializeToString()
    for word in (
        {"hello": agent_pb2.Hello(host="z0-r0-h0", attempts=[agent_pb2.AttemptStatus(key=_KEY)])},
        {"prepared": agent_pb2.Prepared(key=_KEY, address="10.0.0.1", port=4_000)},
        {"refused": agent_pb2.Refused(key=_KEY, reason="there is no program")},
        {"started": agent_pb2.Started(key=_KEY)},
        {"exited": agent_pb2.Exited(key=_KEY, rank=3, code=1, log_tail="RuntimeError")},
        {"stopped": agent_pb2.Stopped(key=_KEY)},
        {"progress": agent_pb2.Progress(key=_KEY, step=7, rank_steps=[7] * 8, loss=2.5)},
    )
]


class _Words(Target):
    """Words with fields changed, or bytes of theirs."""

    def input(self, random: Random) -> bytes:
        if random.random() < 0.2:
            return super().input(random)
        messages = Messages(random, ("z0-r0-h0", "uid-a", "a", ""))
        word = agent_pb2.SessionRequest.FromString(random.choice(_WORDS))
        return messages.changed(word).SerializeToString()


def _word(path: Path) -> object:
    """Deliver a message of a host whose gang runs; the launcher goes on."""

    async def deliver() -> None:
        world = World(2)
        world.join()
        await world.give(gang())
        await world.launched()
        sessions = AgentSessions(GatewayOptions("127.0.0.1:0"), Heartbeats())
        sessions._listener = world.launcher
        kind = FrameKind.HELLO if path.read_bytes()[:1] == b"\x0a" else FrameKind.SAID
        try:
            sessions._hear(Frame(kind, "z0-r0-h0", path.read_bytes()))
        finally:
            await world.after(1.0)
            await world.after(20.0)

    asyncio.run(deliver())
    return None


# --- ID tokens ------------------------------------------------------------------------------------


@cache
def _private() -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(17, ec.SECP256R1())


def _claims() -> dict[str, Any]:
    now = int(time.time())
    who = {"email": "ada@example.org", "groups": ["vision"], "a": {"b": ["c"]}}
    return {"iss": _URL, "aud": "muster", "sub": "u", "iat": now, "exp": now + 9_999, **who}


def _signed(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, _private(), "ES256", headers={"kid": "k"})


def _jwk() -> dict[str, Any]:
    public: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(_private().public_key(), True)
    return public | {"kid": "k"}


@cache
def _id_tokens() -> IdTokens:
    rules = [
        RuleKeys(claim="groups", contains="vision", role="viewer", tenant="vision"),
        RuleKeys(claim="a.b", contains="c", role="viewer", tenant="vision"),
    ]
    section = OidcKeys(issuer=_URL, client_id="muster", rules=rules)
    made = IdTokens(lambda: section, time.time_ns)
    known = made.issuer(section)
    keys = dict(issuer._keys({"keys": [_jwk()]}))
    known._metadata = issuer.IssuerMetadata(_URL, _URL, (), keys)
    known._fetched_s = known._begun_s = float("inf")
    return made


def _token(path: Path) -> object:
    return _id_tokens().caller(path.read_bytes().decode("utf-8", "replace"))


def _claimed(path: Path) -> object:
    """Claims that the issuer has signed. Raises: RefusedInput for what it cannot sign."""
    try:
        text = _signed(json.loads(path.read_bytes()))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RefusedInput(repr(error)) from None
    return _id_tokens().caller(text)


_DISCOVERY: Final = json.dumps(
    {
        "issuer": _URL,
        "authorization_endpoint": f"{_URL}/a",
        "token_endpoint": f"{_URL}/t",
        "jwks_uri": f"{_URL}/k",
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        "keys": [_jwk(), {"kty": "RSA", "n": "AQAB" * 90, "e": "AQAB"}, {"kty": "oct", "k": "x"}],
    }
)


def _issuer(path: Path) -> object:
    """All its answers are this one."""
    raw = path.read_bytes()
    with mock.patch.object(issuer, "ask", side_effect=lambda *_: http._object(raw)):
        return issuer.fetched(_URL, None)


# --- the console ----------------------------------------------------------------------------------

_CONNECT: Final = [
    'CreateJob\ncontent-type: application/json\nmuster-a-bin: AAA\n\n{"spec": {"name": "a"}}',
    "GetJob\ncontent-type: application/proto\nconnect-timeout-ms: 500\n\n\x0a\x01a",
    "ListJobs\ncontent-type: application/json\ncontent-encoding: identity\n\n{}",
    "WatchJobs\ncontent-type: application/connect+json\n\n\x00\x00\x00\x00\x02{}",
]


@dataclass(frozen=True)
class _Calls:
    """As scheduler.console.calls.Calls, with empty answers."""

    def is_stream(self, path: str) -> bool:
        return bool(_method(path).server_streaming)

    async def unary(self, path: str, message: Any, *_: Any) -> Any:
        return GetMessageClass(_method(path).output_type)()

    async def stream(self, path: str, message: Any, *_: Any) -> Any:
        yield StringValue(value=written(ANYBODY)) if message == Empty() else Empty()


def _method(path: str) -> Any:
    return _SERVICE.methods_by_name[path.rpartition("/")[2]]


def _request(path: str, headers: list[tuple[bytes, bytes]], body: bytes, query: bytes = b"") -> Any:
    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    return Request({**scope, "query_string": query, "client": ("127.0.0.1", 1)}, receive)


def _connect(path: Path) -> object:
    """Raises: RefusedInput for an answer that says no."""
    head, _, body = path.read_bytes().partition(b"\n\n")
    name, *rows = head.split(b"\n")
    pairs = (row.partition(b":")[::2] for row in rows)
    headers = [(key.strip().lower(), value.strip()) for key, value in pairs]
    calls: Any = _Calls()
    service = ConnectService(_SERVICE, calls, 100_000)
    request = _request(service.prefix + name.decode(_LATIN), headers, body)
    answer = asyncio.run(service.answer(request))
    assert answer.status_code < 500 or answer.status_code == 501, answer.status_code
    if answer.status_code != 200:
        raise RefusedInput(str(answer.status_code))
    return answer


def _live(path: Path) -> object:
    """A reader's request, up to the first frame. Raises: RefusedInput where it is refused."""
    calls: Any = _Calls()
    maps = LiveMaps(lambda: STATE, mock.Mock(is_set=lambda: False))
    live = LiveStream(calls, maps)

    async def answered() -> bytes:
        answer: Any = await live.answer(_request("/live", [], b"", path.read_bytes()))
        if answer.status_code != 200:
            raise RefusedInput(str(answer.status_code))
        async with aclosing(answer._frames) as frames:
            return await anext(frames)

    return asyncio.run(answered())


# --- rows of a database ---------------------------------------------------------------------------


def _ended() -> Any:
    (event,) = admitted(STATE, cancel("b"))
    row = ended_jobs.ended_by(STATE, event, apply(STATE, event))
    assert row is not None
    return row


def _ended_job(path: Path) -> object:
    return ended_jobs.job_of(zlib.compress(path.read_bytes()))


@dataclass(frozen=True)
class _Store:
    """A log with a snapshot and one row behind it. `event`: Raises what the codec does."""

    event: Callable[[], Any]
    name: str = "the log"

    def check(self) -> None:
        pass

    def first_version(self) -> int:
        return 1

    def snapshots(self, _: int | None = None) -> Iterator[tuple[int, bytes]]:
        yield STATE.version, snapshots.encode(STATE, 0)

    def read(self, after: int) -> Iterator[tuple[int, Any]]:
        yield after + 1, self.event()


def _log_row(path: Path) -> State:
    """A row that fits its digest, as whoever may write to the database can make one."""
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        kind, body = json.loads(text)
        read = partial(codec.decode, str(kind), str(body))
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(repr(error)) from None
    store: Any = _Store(read)
    return replayed(store).state
