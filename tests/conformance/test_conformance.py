"""Clients in Python, JavaScript and Go see the same: a step that one of them fails is printed."""

import json
from typing import Any

import pytest

from scheduler.v1 import service_pb2
from tests.conformance.__main__ import CLIENTS, STEPS, Skipped, run

METHODS = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods_by_name


def steps() -> list[dict[str, Any]]:
    return list(json.loads(STEPS.read_text(encoding="utf-8")))


def test_every_step_names_a_call_and_expects_something() -> None:
    for step in steps():
        assert step["call"] in METHODS
        assert len({"answer", "messages", "error"} & step.keys()) == 1, step["step"]


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_sees_what_the_steps_say(client: str) -> None:
    try:
        is_right, printed = run(client)
    except Skipped as reason:
        pytest.skip(str(reason))
    assert is_right, printed
    assert printed.count("ok    ") == len(steps())
