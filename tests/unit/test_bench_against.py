"""The jobs that two simulators read, and the reservation that both keep."""

from pathlib import Path

from bench.replay import own
from bench.replay.accasim import _reserved
from bench.replay.jobs import PlainJob, drawn, of_log, write


def test_a_log_is_made_plain_and_what_changed_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    fields = "-1 -1 {size} {limit} -1 1 1 1 1 -1 1 -1 -1 -1"
    lines = [
        f"1 0 -1 100 2 {fields.format(size=2, limit=50)}",
        f"2 5 -1 0 1 {fields.format(size=1, limit=60)}",
        f"3 9 -1 70 1 {fields.format(size=1, limit=-1)}",
        f"4 9 -1 70 9 {fields.format(size=9, limit=80)}",
    ]
    path.write_text("\n".join(lines) + "\n")
    jobs, changed = of_log(path, 4, None)
    assert jobs == [
        PlainJob(1, 0, 100, 2, 100),
        PlainJob(2, 5, 1, 1, 60),
        PlainJob(3, 9, 70, 1, 70),
    ]
    assert {what: n for what, n in changed.items() if n} == {
        "larger than the machine": 1,
        "no time limit: its run time": 1,
        "a run of 0 s: 1 s": 1,
        "outran its time limit: as long as it ran": 1,
    }


def test_drawn_jobs_fit_and_never_outrun_their_limits() -> None:
    jobs = drawn(300, 64, 0.9, seed=3)
    assert jobs == drawn(300, 64, 0.9, seed=3)
    assert all(1 <= job.run <= job.limit and job.size <= 64 for job in jobs)
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)


def test_a_reservation_is_the_first_end_that_makes_room_and_what_it_leaves() -> None:
    assert _reserved(1, 4, [(10, 2), (20, 3), (30, 5)]) == (20, 2)
    assert _reserved(1, 4, [(20, 3), (20, 2), (30, 5)]) == (20, 2)


def test_a_run_tells_the_start_of_every_job(tmp_path: Path) -> None:
    write([PlainJob(1, 0, 50, 2, 50), PlainJob(2, 1, 50, 2, 50)], tmp_path / "jobs.swf")
    answer = own.simulate(tmp_path / "jobs.swf", 2, "fifo")
    assert answer["starts"] == {"1": 0, "2": 50}
    assert answer["totals"]["makespan_s"] == 100
