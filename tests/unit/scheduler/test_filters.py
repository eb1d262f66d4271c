"""Filters: what they let pass, and that nothing is ignored."""

from dataclasses import dataclass, field

import pytest

from scheduler.wire.lists.filters import (
    DEEPEST,
    LONGEST,
    BadFilter,
    ChoiceField,
    Field,
    MapField,
    NamesField,
    NumberField,
    TextField,
    TimeField,
    parse,
)


@dataclass(frozen=True)
class Thing:
    name: str = "a"
    state: str = "RUNNING"
    priority: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    start_ns: int = 0
    seen_ns: int | None = None


FIELDS: dict[str, Field] = {
    "name": TextField(lambda thing: thing.name),
    "state": ChoiceField(lambda thing: thing.state, ("QUEUED", "RUNNING"), "STATE_"),
    "priority": NumberField(lambda thing: thing.priority),
    "labels": MapField(lambda thing: thing.labels),
    "domains": NamesField(lambda thing: thing.domains),
    "start": TimeField(lambda thing: thing.start_ns),
    "seen": TimeField(lambda thing: thing.seen_ns),
}
THINGS = (
    Thing("eval-1", "RUNNING", 5, {"team": "nlp", "a/b.c": "x"}, ("z0", "z0-r1"), 60 * 10**9),
    Thing("eval-2", "QUEUED", -1, {"team": "vision"}, ("z1",), seen_ns=1),
    Thing("train", "QUEUED", 10, {}, ("z0",)),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "012"),
        ("   ", "012"),
        ("state = RUNNING", "0"),
        ("state != RUNNING", "12"),
        ('name = "eval-*"', "01"),
        ("name = eval-*", "01"),
        ("name != 'eval-*'", "2"),
        ("name:rai", "2"),
        ('name = "eval-1"', "0"),
        ("name > eval-1", "12"),
        ("priority >= 5", "02"),
        ("priority = -1", "1"),
        ("priority < 0", "1"),
        ("labels.team = nlp", "0"),
        ("labels.team = *", "01"),
        ("labels.team != nlp", "12"),
        ("labels:team", "01"),
        ("NOT labels:team", "2"),
        ("labels.a/b.c = x", "0"),
        ("domains:z0", "02"),
        ("domains:z0-*", "0"),
        ("state = QUEUED AND labels:team", "1"),
        ("state = RUNNING OR priority = 10", "02"),
        # OR binds tighter than AND.
        ("state = QUEUED AND name = train OR name = eval-1", "2"),
        ("(state = QUEUED AND name = train) OR name = eval-1", "02"),
        ("NOT (name = train OR state = RUNNING)", "1"),
        ("NOT NOT name = train", "2"),
        ('start = "1970-01-01T00:01Z"', "0"),
        ('start < "1970-01-01 00:01:00+00:00"', "12"),
        ('start >= "1970-01-01T01:00+01:00"', "012"),
        ("start = 1970-01-01T00:01:00Z", "0"),
        ("start > 1970-01-01T00:00:59.999999999Z AND state = RUNNING", "0"),
        ("start >= 1970-01-01T00:01:00.000000001Z", ""),
        ("seen = 1970-01-01T00:00:00.000000001Z", "1"),
        ("seen > 1970-01-01T00:00Z", "1"),
        ("seen != 1970-01-01T00:00Z", "012"),
        ("seen:*", "1"),
        ("state = STATE_RUNNING", "0"),
        ('name = "*-2"', "1"),
        ("name = *a*", "012"),
        ("name != *n", "01"),
        ("name:*", "012"),
        ("name:ev*", "01"),
        ("labels.team:*", "01"),
        ("labels.team:n*", "0"),
        ("labels.team = *sion", "1"),
        ("NOT labels.team:*", "2"),
        ("labels:*", "01"),
        ("labels:a/*", "0"),
        ("domains:*-r1", "0"),
        (r'name = "\*"', ""),
    ],
)
def test_what_passes(text: str, found: str) -> None:
    test = parse(text, FIELDS)
    assert "".join(str(i) for i, thing in enumerate(THINGS) if test(thing)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size = 3", "at 1, 'size': is not a field; fields are name, state"),
        ("state = runs", "at 9, 'runs': is not one of QUEUED, RUNNING"),
        ("state < RUNNING", "is compared with = or !="),
        ("priority = many", "is not a whole number"),
        ("priority = ٣", "is not a whole number"),
        ("priority : 3", "a number is not compared with ':'"),
        ("domains = z0", "a list is compared with ':'"),
        ("labels = team", "is compared with ':'"),
        ("name", "at its end: a comparison such as = was expected"),
        ("name =", "at its end: a value was expected"),
        ("name = a name = b", "at 10, 'name': AND, OR or the end was expected"),
        ("name = a AND", "at its end: one of name"),
        ("(name = a", "at its end: a closing parenthesis"),
        ("name = a)", "AND, OR or the end"),
        ("name == a", "a value was expected"),
        ('name = "a', "at 8: '\"' is not understood"),
        ("name = e*1", "a star stands at the begin or at the end of a value"),
        ("name > e*", "a star stands after =, != or ':'"),
        ("labels.team:n*p", "a star stands at the begin or at the end"),
        ("start = yesterday", "must be a date and time such as 2026-11-21T06:00Z"),
        ("start = 1970-01-01T00:01:00.1234567891Z", "must be a date and time"),
        ('start:"1970-01-01T00:01Z"', "a time is not compared with ':'"),
        ("name = a; drop", "at 9: ';' is not understood"),
        ("a" * (LONGEST + 1), "is longer than"),
        ("(" * (DEEPEST + 2) + "name = a", "nested deeper than"),
        ("NOT " * (DEEPEST + 2) + "name = a", "nested deeper than"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(BadFilter) as caught:
        parse(text, FIELDS)
    assert message in str(caught.value)


def test_a_key_without_a_value_is_there() -> None:
    thing = Thing(labels={"spot": ""})
    found = {text: parse(text, FIELDS)(thing) for text in ("labels.spot:*", "labels.spot:a*")}
    assert found == {"labels.spot:*": True, "labels.spot:a*": False}


def test_quotes_and_backslashes_are_part_of_a_value_when_escaped() -> None:
    test = parse(r'name = "a \"b\" \\"', FIELDS)
    assert test(Thing('a "b" \\'))
    assert parse(r'name = "\*a"', FIELDS)(Thing("*a"))
    assert not parse(r'name = "\*a"', FIELDS)(Thing("ba"))
    assert parse(r'name = "*\*"', FIELDS)(Thing("ba*"))
