"""Threads that create, label, cancel and read jobs of few names, and write down what they saw."""

from __future__ import annotations

import time
from collections import defaultdict
from math import inf
from random import Random
from threading import Event, Lock, Thread

from drills.linearizable import CallKind, RecordedCall, Seen, Value
from placement.fabric.constraints import ANYWHERE, Constraints
from scheduler.client import Client, ServiceError
from scheduler.v1 import job_pb2
from tests.build import spec

THREADS = 6
NAMES = 24  # few enough that calls on one name overlap
_ENDED = (
    job_pb2.JOB_STATE_CANCELLED,
    job_pb2.JOB_STATE_COMPLETED,
    job_pb2.JOB_STATE_FAILED,
)


class RecordedLoad:
    """Clients that call servers between `start` and `finish`. `histories`: calls by name;
    `acknowledged`: the mark and the uid of every create that was answered. `gpus`, `where`: of each
    job; `limit_s`: of the first one, each next one's is a second longer."""

    def __init__(
        self,
        addresses: str,
        seed: int,
        prefix: str,
        *,
        gpus: int = 8,
        where: Constraints = ANYWHERE,
        limit_s: int = 1,
    ) -> None:
        self.histories: dict[str, list[RecordedCall]] = defaultdict(list)
        self.acknowledged: dict[int, str] = {}
        self._addresses = addresses
        self._seed = seed
        self._prefix = prefix
        self._gpus, self._where = gpus, where
        self._stop = Event()
        self._lock = Lock()
        self._mark = limit_s - 1
        self._errors: list[BaseException] = []
        self._threads = [Thread(target=self._run, args=(i,)) for i in range(THREADS)]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def finish(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()
        if self._errors:
            raise self._errors[0]

    def probe_s(self, began_s: float) -> float:
        """Return the seconds from `began_s` until a create that begins now is acknowledged."""
        with Client(self._addresses, deadline_s=60) as client:
            client.create_job(spec(f"{self._prefix}-probe", limit_s=1))
        return time.monotonic() - began_s

    def _run(self, number: int) -> None:
        try:
            self._work(number)
        except BaseException as error:
            self._errors.append(error)

    def _work(self, number: int) -> None:
        random = Random(self._seed * 100 + number)
        with Client(self._addresses, deadline_s=40, latest=True) as client:
            while not self._stop.is_set():
                name = f"{self._prefix}-{random.randrange(NAMES):02d}"
                kind = random.choice([*CallKind, CallKind.GET])
                self._call(client, kind, name)
                time.sleep(random.uniform(0, 0.02))

    def _call(self, client: Client, kind: CallKind, name: str) -> None:
        with self._lock:
            self._mark += 1
            mark = self._mark
        began_s = time.monotonic()
        try:
            answer: Value | str = self._ask(client, kind, name, mark)
            ended_s = time.monotonic()
        except ServiceError as error:
            if error.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                raise
            answer, ended_s = None, inf  # it may have happened, or may yet
        with self._lock:
            self.histories[name].append(RecordedCall(kind, began_s, ended_s, answer, mark))

    def _ask(self, client: Client, kind: CallKind, name: str, mark: int) -> Value | str:
        """A job is told from others of its name by its time limit."""
        try:
            match kind:
                case CallKind.CREATE:
                    job = client.create_job(
                        spec(name, 1, gpus=self._gpus, limit_s=mark, where=self._where)
                    )
                    with self._lock:
                        self.acknowledged[mark] = job.uid
                case CallKind.CANCEL:
                    job = client.cancel_job(name)
                case CallKind.LABEL:
                    labelled = job_pb2.Job(name=name)
                    labelled.spec.labels["mark"] = str(mark)
                    job = client.update_job(labelled, ["labels"])
                case CallKind.GET:
                    job = client.get_job(name)
        except ServiceError as error:
            if error.reason == "ALREADY_EXISTS":
                return "taken"
            if error.reason == "NOT_FOUND":
                return None
            if kind is CallKind.LABEL and error.reason == "WRONG_STATE":
                return "over"
            raise
        label = int(job.spec.labels.get("mark", "0"))
        return Seen(job.spec.time_limit.seconds, job.state not in _ENDED, label)
