"""People and programs are told what becomes of jobs, by receivers that may be slow or away."""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scheduler.files.errors import InputError
from scheduler.files.notify import load_notify
from scheduler.v1 import service_pb2
from tests.cases import case
from tests.ports import free_port
from tests.serving import RUNNING, Served, create, path, serving
from tests.waiting import until

SECRET = b"a secret of 24 characters"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.server.notify.FIRST_PAUSE_S", 0.05)


class Hook(ThreadingHTTPServer):
    """Keeps what it accepts. `answers`: statuses of the first requests; then 200."""

    daemon_threads = True

    def __init__(self, port: int = 0, answers: tuple[int, ...] = (), delay_s: float = 0) -> None:
        self.answers, self.delay_s = list(answers), delay_s
        self.asked = 0
        self.bodies: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        time.sleep(self.server.delay_s)
        status = self.server.answers.pop(0) if self.server.answers else 200
        signature = hmac.new(SECRET, data, hashlib.sha256).hexdigest()
        if "Muster-Signature" in self.headers:
            assert self.headers["Muster-Signature"] == f"sha256={signature}"
        if status == 200:
            self.server.bodies.append(json.loads(data))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@contextmanager
def hooked(**options: Any) -> Iterator[Hook]:
    with Hook(**options) as hook:
        thread = threading.Thread(target=hook.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            hook.shutdown()
            thread.join()


def notify_file(folder: Path, *receivers: str) -> str:
    (folder / "hmac.key").write_bytes(SECRET + b"\n")
    text = "\n".join(("cursors: cursors", "receivers:", *(f"  {each}" for each in receivers)))
    (folder / "notify.yaml").write_text(f"{text}\n")
    load_notify(str(folder / "notify.yaml"))
    return str(folder / "notify.yaml")


def webhook(port: int, more: str = "") -> str:
    return f"hook: {{webhook: 'http://127.0.0.1:{port}/x', secret_file: hmac.key{more}}}"


async def run_and_cancel(served: Served, name: str, **labels: str) -> None:
    request = create(name, 1)
    request.spec.labels.update(labels)
    await served.stub.CreateJob(request)
    await served.until(path(name), RUNNING)
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name=path(name)))


async def test_a_webhook_is_told_in_order_what_it_did_not_accept_at_first(tmp_path: Path) -> None:
    """And one that refuses a message for good is told the next."""
    with hooked(answers=(503, 429, 200, 500, 200, 400)) as hook:
        notify = notify_file(tmp_path, webhook(hook.server_port))
        async with serving(tmp_path, notify=notify) as served:
            await run_and_cancel(served, "a")
            await until(lambda: len(hook.bodies) == 2)
            await run_and_cancel(served, "b")
            await until(lambda: len(hook.bodies) == 3)
    assert [(each["job"], each["event"], each["state"]) for each in hook.bodies] == [
        ("a", "started", "running"),
        ("a", "ended", "cancelled"),
        ("b", "ended", "cancelled"),
    ]
    assert (hook.asked, hook.bodies[0]["text"].startswith("a: started, attempt 1")) == (7, True)


async def test_a_receiver_that_is_away_delays_nobody_and_is_told_after_a_restart(
    tmp_path: Path,
) -> None:
    port = free_port()
    with hooked() as chat, hooked(delay_s=3) as slow:
        notify = notify_file(
            tmp_path,
            webhook(port),
            f"chat: {{slack: 'http://127.0.0.1:{chat.server_port}', events: [ended]}}",
            f"slow: {{slack: 'http://127.0.0.1:{slow.server_port}'}}",
        )
        async with serving(tmp_path, notify=notify) as served:
            since_s = time.monotonic()
            await run_and_cancel(served, "a")
            await run_and_cancel(served, "b")
            await until(lambda: len(chat.bodies) == 2)
            assert time.monotonic() - since_s < 3
        assert [each["text"].partition(":")[0] for each in chat.bodies] == ["a", "b"]
        assert set(chat.bodies[0]) == {"text"}
    with hooked(port=port) as hook:
        async with serving(tmp_path, notify=notify):
            await until(lambda: len(hook.bodies) == 4)
    told = [(each["job"], each["event"]) for each in hook.bodies]
    assert told == [("a", "started"), ("a", "ended"), ("b", "started"), ("b", "ended")]


@contextmanager
def mail_server(handle: Callable[[Any, Any], None], **options: Any) -> Iterator[str]:
    """The keys of a receiver with a mail server of this machine. `handle`: session and envelope of
    each mail."""
    controller = pytest.importorskip("aiosmtpd.controller")

    class Box:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            handle(session, envelope)
            return "250 OK"

    port = free_port()
    server = controller.Controller(Box(), hostname="127.0.0.1", port=port, **options)
    server.start()
    try:
        yield f"smtp: '127.0.0.1:{port}', sender: m@example.org, to: [ml@example.org]"
    finally:
        server.stop()


async def test_a_labelled_receiver_gets_mail_of_the_jobs_that_name_it(tmp_path: Path) -> None:
    mails: list[Message] = []
    with mail_server(lambda _, sent: mails.append(message_from_bytes(sent.content))) as mail:
        notify = notify_file(tmp_path, f"owner: {{{mail}, labelled: true, events: [ended]}}")
        async with serving(tmp_path, notify=notify) as served:
            await run_and_cancel(served, "quiet")
            await run_and_cancel(served, "told", notify="owner")
            await until(lambda: len(mails) == 1)
    (sent,) = mails
    assert (sent["To"], sent["Subject"].startswith("told: cancelled")) == ("ml@example.org", True)


async def test_a_mail_server_that_wants_a_login_gets_it(tmp_path: Path) -> None:
    """Over a connection of this machine alone in the clear, and again once a password is mended."""
    smtp = pytest.importorskip("aiosmtpd.smtp")
    mails: list[bytes] = []
    shown: list[bytes] = []

    def authenticate(*arguments: Any) -> Any:
        data = arguments[-1]
        shown.append(data.password)
        is_known = (data.login, data.password) == (b"muster", b"pass")
        return smtp.AuthResult(success=is_known, handled=False, auth_data=data.login)

    options = {"authenticator": authenticate, "auth_require_tls": False}
    with mail_server(lambda session, _: mails.append(session.auth_data), **options) as mail:
        (tmp_path / "password").write_text("wrong\n")
        login = "user: muster, secret_file: password, events: [ended]"
        notify = notify_file(tmp_path, f"owner: {{{mail}, {login}}}")
        async with serving(tmp_path, notify=notify) as served:
            await run_and_cancel(served, "a")
            await until(lambda: b"wrong" in shown, within_s=60)
            (tmp_path / "password").write_text("pass\n")
            served.reload.set()
            await until(lambda: len(mails) == 1, within_s=60)
    assert mails == [b"muster"]


async def test_receivers_are_read_again(tmp_path: Path) -> None:
    with hooked() as first, hooked() as second:
        notify = notify_file(tmp_path, webhook(first.server_port))
        async with serving(tmp_path, notify=notify) as served:
            await run_and_cancel(served, "a")
            await until(lambda: len(first.bodies) == 2, within_s=60)
            (tmp_path / "notify.yaml").write_text("receivers: {a: {}}")
            await served.read_again()
            await run_and_cancel(served, "b")
            await until(lambda: len(first.bodies) == 4, within_s=60)  # that file was rejected
            notify_file(tmp_path, webhook(second.server_port))
            await served.read_again()
            await run_and_cancel(served, "c")
            await until(lambda: any(each["job"] == "c" for each in second.bodies), within_s=60)


def test_a_wrong_notify_file_is_refused_with_its_line(tmp_path: Path) -> None:
    for receiver, message in (
        ("a: {}", "needs one of webhook, slack and smtp"),
        ("a: {webhook: 'http://x'}", "needs a secret_file"),
        ("a: {webhook: 'http://x', secret_file: none.key}", "cannot be read"),
        ("a: {slack: 'ftp://x'}", "must begin with https://"),
        ("a: {smtp: mail, sender: a@b, to: [c@d]}", "must be HOST:PORT"),
        ("a: {smtp: 'mail:25'}", "needs sender and to"),
        ("a: {smtp: 'mail:25', sender: a@b, to: [c@d], user: e}", "needs a secret_file with its"),
        ("a: {slack: 'http://x', events: [never]}", "events"),
        ("a/b: {slack: 'http://x'}", "a receiver's name"),
    ):
        with case(receiver=receiver), pytest.raises(InputError, match=message) as found:
            notify_file(tmp_path, receiver)
        assert "notify.yaml:3" in str(found.value)
