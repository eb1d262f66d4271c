"""A small part of `make fuzz`: hypothesis makes and shrinks what breaks a reader or a call."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drills.fuzz import calls, samples
from drills.fuzz.targets import Target, targets
from importers.jobs.draft import Tool
from scheduler.files import fabrics
from simulator.traces.load import FORMATS

TARGETS = list(targets())
FEW = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@FEW
@given(random=st.randoms(use_true_random=False))
def test_a_reader_takes_or_refuses(target: Target, random: Random, tmp_path: Path) -> None:
    target.run(target.input(random), tmp_path / "input")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_inputs_are_made_from_is_right(target: Target, tmp_path: Path) -> None:
    """Else everything would be refused at its first line."""
    refused = [
        s for s in target.seeds if not target.run(s.encode(target.encoding), tmp_path / "input")
    ]
    assert refused == []


@pytest.mark.parametrize("method", sorted(calls.METHODS))
def test_a_call_is_answered_or_refused(method: str) -> None:
    made: list[str] = []
    source = calls.calls(Random(f"ci/{method}"), method)
    asyncio.run(calls.run(source, 15, lambda call, _: made.append(call.method)))
    assert made == [method] * 15


def test_every_reader_is_a_target() -> None:
    names = {target.name for target in TARGETS}
    assert {f"trace {name}" for name in FORMATS} <= names
    assert {f"topology {form}" for form in fabrics.FORMATS} <= names
    assert {f"import {tool}" for tool in Tool} <= names
    assert set(samples.traces()) == set(FORMATS)


async def test_a_servicer_that_fails_is_found() -> None:
    """The net has no hole: a fault inside is not taken for a refusal."""

    class Broken:
        async def GetJob(self, *_: object) -> object:
            raise ZeroDivisionError

    call = next(calls.calls(Random(1), "GetJob"))
    with pytest.raises(AssertionError, match="internal error"):
        await calls.FuzzedServer(Broken()).call(call)  # type: ignore[arg-type]
