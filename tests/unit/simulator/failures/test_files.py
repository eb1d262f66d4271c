"""Files of causes and logs of other clusters: what they mean, and what is refused."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from scheduler.files.yaml12 import load
from simulator.failures import ALL, LogExtent, LogWindow, Outage, parse
from simulator.failures.cause import Precursor
from simulator.failures.fleetlog import FleetLog, Interval, laid_out
from simulator.failures.yamlfile import causes_of
from simulator.traces.record import SECOND_NS
from tests.refusals import refusal
from tests.replays import machine

FABRIC = machine(10)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def refused(text: str, window: LogWindow = ALL) -> str:
    return refusal(lambda: list(islice(parse(text, window=window)(FABRIC, 0), 10)))


def fault(day: float, kind: str, node: str = "a", cause: str = "GPU") -> dict[str, Any]:
    return {
        "node_id": node,
        "event_time": day,
        "event_type": f"fault_{kind}",
        "fault_type": {"Level": "Hardware Failure", "Class": cause, "Desc": "xid"},
    }


def test_a_file_of_causes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "model.yaml",
        """
        preset: rsc1
        scale: 2
        lemons: {share: 0.1, factor: 5}
        causes:
          - {name: tor, rate: 0.2, scope: zone, group: 3, repair: {mean_h: 4, kind: fixed}}
          - {name: new, rate: 1, life: {shape: 0.6, age_days: 30}, repair: {mean_h: 0}}
        """,
    )
    host, tor, new = causes_of(load(path))

    assert (host.name, host.rate) == ("rsc1-host", 13.0)
    assert host.lemons.factor == 5
    assert (tor.scope, tor.group, tor.repair.kind, tor.lemons) == ("zone", 3, "fixed", None)
    assert (new.shape, new.age_days, new.repair.mean_h) == (0.6, 30, 0)


def test_a_cause_with_a_precursor_and_one_named_again_that_replaces_the_presets(
    tmp_path: Path,
) -> None:
    (cause,) = causes_of(load(write(tmp_path / "model.yaml", told_by("recall: 0.7"))))
    assert cause.precursor == Precursor("link-flap", 0.7, 0.1, 24)

    text = "preset: rsc1\ncauses: [{name: rsc1-host, rate: 1, repair: {mean_h: 1}}]\n"
    (cause,) = causes_of(load(write(tmp_path / "model.yaml", text)))
    assert cause.rate == 1


def told_by(change: str) -> str:
    """A file of one cause with a precursor, one key of which is another."""
    keys = {"signal": "link-flap", "recall": 0.5, "precision": 0.1, "lead_h": 24}
    key, value = change.split(": ")
    precursor = ", ".join(f"{k}: {v}" for k, v in {**keys, key: value}.items())
    return (
        f"causes:\n- {{name: a, rate: 1, repair: {{mean_h: 1}},\n   precursor: {{{precursor}}}}}\n"
    )


def test_a_bad_file_of_causes_is_named(tmp_path: Path) -> None:
    for text, told in {
        "preset: rsc9\n": ":1: preset: must be one of llama3, ft-hsdp, rsc1, rsc2, not 'rsc9'",
        "scale: 2\n": "names neither a preset nor causes",
        "causes:\n- {name: a, rate: 0, repair: {mean_h: 1}}\n": ":2: causes.0.rate: must be more",
        "causes:\n- {name: a, repair: {kind: slow}}\n": ":2: causes.0.repair.kind: must be one of",
        "causes:\n- {name: a, rat: 1, repair: {mean_h: 1}}\n": "did you mean rate?",
        "preset: rsc1\nlemons: {share: 2, factor: 3}\n": ":2: lemons.share: must be at most 1",
        "preset: rsc1\nlemons: {share: 1, factor: 1}\n": "lemons.factor: must be more than 1",
        told_by("recall: 1.5"): ":3: causes.0.precursor.recall: must be at most 1",
        told_by("signal: smoke"): ":3: causes.0.precursor.signal: must be one of",
        told_by("recall: 1").replace(
            "rate: 1", "rate: 1, scope: zone"
        ): ":3: causes.0.precursor: is of causes of single hosts; leave scope and group out",
    }.items():
        path = write(tmp_path / "model.yaml", text)
        assert told in (found := refused(str(path)))
        assert str(path) in found


HEAD = "time_s,host,state,cause\n"


def test_host_events_are_read_in_time_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{HEAD}90,z0-h1,up,\n\n1.5,z0-h1,down,gpu-lost\n")
    assert list(parse(str(path))(FABRIC, 0)) == [
        Outage(1_500_000_000, "z0-h1", True, "gpu-lost"),
        Outage(90 * SECOND_NS, "z0-h1", False, "gpu-lost"),
    ]


def test_bad_host_events_are_named(tmp_path: Path) -> None:
    for text, told in {
        f"{HEAD}soon,z0-h0,down,x\n": ":2: time_s: must be a number, not 'soon'",
        f"{HEAD}-1,z0-h0,down,x\n": ":2: time_s: must not be negative: '-1'",
        f"{HEAD}1,z9,down,x\n": ":2: host: must be a host of this fabric, not 'z9'",
        f"{HEAD}1,z0-h0,broken,x\n": ":2: state: must be down or up, not 'broken'",
        f"{HEAD}1,z0-h0,down\n": ":2: columns: must be as many as in the header, not '3'",
        "1,z0-h0,down,x\n": ":1: header: must name the column time_s: '1,z0-h0,down,x'",
    }.items():
        path = write(tmp_path / "a.csv", text)
        assert refused(str(path)) == f"{path}{told}"


def test_infinitehbd_pairs_starts_and_ends_of_a_server(tmp_path: Path) -> None:
    events = [fault(1, "start"), fault(1, "start", "b"), fault(2, "end"), fault(4, "end", "b")]
    path = write(tmp_path / "faults.json", json.dumps(events))
    stream = list(parse(f"infinitehbd:{path}")(machine(400), 0))

    days = [(o.time_ns // SECOND_NS / 86_400, o.is_down) for o in stream]
    assert days == [(1, True), (1, True), (2, False), (4, False)]
    assert len({o.host for o in stream}) == 2
    assert {o.cause for o in stream} == {"GPU: xid"}


def test_a_small_fabric_takes_its_share_of_the_fleet(tmp_path: Path) -> None:
    days = ((1.0, "start"), (2.0, "end"))
    events = [fault(*at, f"s{server}") for server in range(200) for at in days]
    path = write(tmp_path / "faults.json", json.dumps(events))
    hit = {o.host for o in parse(f"infinitehbd:{path}")(machine(100), 0)}

    assert 30 < len(hit) < 70  # 200 of 400 servers fail: half of the hosts


def test_further_copies_of_a_fleet_fail_at_other_times() -> None:
    log = FleetLog(4, 1000.0, (Interval(0, 10, 5, "x"), Interval(1, 10, 5, "x")))
    stream = [o for o in laid_out(log, machine(12), 1) if o.is_down]
    times = [o.time_ns for o in stream]

    assert len(stream) == 6
    assert len(set(times)) == 3  # what failed together still does
    assert all(0 <= time_ns < 1000 * SECOND_NS for time_ns in times)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([fault(-1, "start")], ":1: event_time: must not be negative"),
        ([{"node_id": "a"}], ":1: event_time: is required"),
        ([fault(1, "start") | {"fault_type": 3}], ":1: fault_type.Class: must be a text"),
        ([fault(1, "pause")], ":1: event_type: must be fault_start or fault_end"),
        ([7], ":1: event: must be a JSON object"),
        ({}, ":1: file: must be one JSON array"),
        ('[\n{"a": 1,,}]', ":2: file: must be one JSON array: "),
        (None, "no such file"),
    ],
)
def test_bad_infinitehbd_events_are_named(tmp_path: Path, events: Any, told: str) -> None:
    path = tmp_path / "faults.json"
    if events is not None:
        path.write_text(events if isinstance(events, str) else json.dumps(events))
    assert told in refused(f"infinitehbd:{path}")


def seconds(text: str, window: LogWindow = ALL, most: int = 20) -> list[tuple[float, bool]]:
    """When hosts of a one-host machine go down or come back."""
    stream = islice(parse(text, window=window)(machine(1), 0), most)
    return [(outage.time_ns / SECOND_NS, outage.is_down) for outage in stream]


def host_log(tmp_path: Path, *rows: tuple[float, str]) -> str:
    body = "".join(f"{time_s},z0-h0,{state},\n" for time_s, state in rows)
    return str(write(tmp_path / "log.csv", f"time_s,host,state,cause\n{body}"))


def test_a_log_repeats_where_it_ends_and_begins_later_with_who_is_down_then(tmp_path: Path) -> None:
    log = host_log(tmp_path, (10, "down"), (30, "up"), (100, "down"), (130, "up"))

    assert seconds(log) == [(10, True), (30, False), (100, True), (130, False)]
    again = seconds(log, LogWindow(is_repeated=True), 8)
    assert again == [(t + turn, d) for turn in (0, 130) for t, d in seconds(log)]
    assert seconds(log, LogWindow(20)) == [(0, True), (10, False), (80, True), (110, False)]
    assert seconds(log, LogWindow(30)) == [(70, True), (100, False)]
    again = seconds(log, LogWindow(90, is_repeated=True), 4)
    assert again == [(10, True), (40, False), (50, True), (80, False)]


def test_what_a_repeated_log_leaves_down_comes_back_when_it_begins_again(tmp_path: Path) -> None:
    rows = "10,z0-h0,down,\n30,z0-h0,up,\n95,z0-h0,down,\n110,z0-h1,down,\n110,z0-h1,up,\n"
    log = str(write(tmp_path / "log.csv", f"time_s,host,state,cause\n{rows}"))
    window = LogWindow(is_repeated=True)
    stream = (o for o in parse(log, window=window)(machine(2), 0) if o.host == "z0-h0")

    times = [(o.time_ns // SECOND_NS, o.is_down) for o in islice(stream, 6)]
    assert times == [(10, True), (30, False), (95, True), (110, False), (120, True), (140, False)]


def test_a_window_that_no_log_fills_is_named(tmp_path: Path) -> None:
    log = host_log(tmp_path, (10, "down"), (30, "up"))
    short = str(write(tmp_path / "short.csv", "time_s,host,state,cause\n0,z0-h0,down,\n"))
    for text, window, wrong in (
        (log, LogWindow(7200), "--failures-from-h: log.csv ends after 0.01 h"),
        ("llama3", LogWindow(1), "--failures-from-h: is for recorded failures; llama3 names no"),
        ("llama3", LogWindow(is_repeated=True), "--failures-repeat: is for recorded failures"),
        (short, LogWindow(is_repeated=True), "--failures-repeat: short.csv covers no time"),
    ):
        assert wrong in refused(text, window)


def test_ends_of_what_began_before_a_log_that_was_cut_are_counted(tmp_path: Path) -> None:
    """Its server is down from the first event on; a second end of the same is passed over."""
    events = [fault(174, "start", "b"), fault(175, "end"), fault(176, "end")]
    events.append(fault(180, "end", "b"))
    path = write(tmp_path / "faults.json", json.dumps(events))
    stream = parse(f"infinitehbd:{path}")(machine(400), 0)

    days = [(o.time_ns / SECOND_NS / 86_400, o.is_down) for o in stream]
    assert days == [(174, True), (174, True), (175, False), (180, False)]
    assert stream.logs[0].orphan_ends == 2
    assert "2 outages end that did not begin in it" in next(stream.logs[0].warnings(1))


def test_a_log_says_when_it_begins_late_or_ends_early() -> None:
    day_s = 86_400.0
    events = tuple(Interval(0, day * day_s, 60, "x") for day in range(174, 348))
    log = FleetLog(1, 348 * day_s, events, name="half.json")
    extent = LogExtent.of(log, is_repeated=False)

    (late,) = extent.warnings(100 * day_s)
    assert "its first failure is 174.0 d after the first submit" in late
    assert "--failures-from-h 4176 begins there" in late
    late, early = extent.warnings(365 * day_s)
    assert "ends 348.0 d after the first submit; the last 17.0 d of the replay" in early
    whole = LogExtent.of(LogWindow(174 * day_s, is_repeated=True).cut(log), is_repeated=True)
    assert not list(whole.warnings(365 * day_s))
    assert list(LogExtent.of(FleetLog(1, 0, (), name="e.csv"), True).warnings(1)) == [
        "e.csv holds no failure"
    ]
