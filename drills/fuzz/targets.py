"""Everything that reads what people and other programs write, and how it may refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from random import Random

from drills.fuzz import mutate, samples
from importers.health.dcgm import load_dcgm
from importers.jobs.draft import Tool
from importers.jobs.load import Given, import_job
from importers.measured.nccl import read_sizes
from importers.measured.steps import read_steps
from placement.errors import BadInput
from placement.fabric import hostlist
from placement.fabric.reader import from_spec, preset
from scheduler.access.auth_file.reading import load_auth
from scheduler.agent.ranks.attempt import MOST_SAID, BadReport, parse_report
from scheduler.cli.offline.estimate import _estimated as step_table_estimated
from scheduler.core import State
from scheduler.core.explain.whatif import supposed
from scheduler.eventlog import codec, snapshots
from scheduler.files import fabrics, yaml12
from scheduler.files.errors import InputError
from scheduler.files.fabrics import overlay
from scheduler.files.health.policyfile import load_health
from scheduler.files.health.slurmnodes import load_slurm
from scheduler.files.inputs import load_busy, load_fabric, load_job, load_placement
from scheduler.files.job import job_from_mapping
from scheduler.files.job_keys import JobKeys, parse_spares
from scheduler.files.step_table import read_table
from scheduler.files.tenants import load_tenants
from scheduler.files.windows import load_windows
from scheduler.server.config import ServerKeys, load_server_file
from scheduler.v1 import agent_pb2
from scheduler.wire.lists import filters, listing, paging
from simulator import failures
from simulator.traces.load import FORMATS, TraceFile
from simulator.traces.record import BadRecord
from tests.build import cordon, fabric, job_to_mapping, loaded, started, submit

SMALL, LARGE = fabric(), preset("roce-24k")
STATE = started(loaded(SMALL), cordon("z1-r1-h1"), submit("a", 2), submit("b", 8), submit("c", 2))


@dataclass(frozen=True)
class Target:
    """One reader to be fuzzed. `read` takes a file; it may raise `refusals` and nothing else.

    `weight`: its share of a long run. `encoding`: of the seeds; latin-1 where they are no texts.
    """

    name: str
    seeds: Sequence[str]
    read: Callable[[Path], object]
    refusals: tuple[type[Exception], ...] = (InputError,)
    words: Sequence[str] = field(default_factory=tuple)
    weight: int = 1
    encoding: str = "utf-8"

    def input(self, random: Random) -> bytes:
        if self.encoding != "utf-8":
            return mutate.raw(random, random.choice(self.seeds).encode(self.encoding))
        return mutate.text(random, self.seeds, self.words)

    def run(self, raw: bytes, file: Path) -> bool:
        """Read one input, and return whether it was accepted. Raises: any error that no reader may
        raise."""
        file.write_bytes(raw)
        try:
            self.read(file)
        except self.refusals as error:
            if not str(error):
                raise AssertionError("a refusal says nothing") from error
            return False
        return True


def targets() -> Iterator[Target]:
    """Return all targets, in a fixed order."""
    keys = (*JobKeys.model_fields, "tp", "pp", "dp", "layers", "hidden", "global_sequences")
    yield Target("yaml", samples.YAML, lambda path: yaml12.load(path), weight=3)
    yield Target("job file", samples.JOBS, _job, words=keys, weight=3)
    yield Target("fabric file", samples.FABRICS, lambda path: load_fabric(str(path)), weight=3)
    yield Target("tenants file", samples.TENANTS, _tenants, weight=2)
    yield Target("windows file", samples.WINDOWS, _windows, words=("maintenance", "reservation"))
    yield Target("health file", samples.HEALTH, lambda path: load_health(str(path)))
    yield Target("auth file", samples.AUTH, lambda path: load_auth(str(path)))
    yield Target("health dcgm", samples.DCGM, lambda path: load_dcgm(str(path)))
    yield Target("health slurm", samples.SLURM_NODES, lambda path: load_slurm(str(path)))
    yield Target("server file", samples.SERVERS, _server, words=tuple(ServerKeys.model_fields))
    yield Target("busy file", samples.BUSY, lambda path: load_busy(str(path), SMALL), weight=2)
    yield Target("old placement", samples.OLD, _old, weight=2)
    yield Target("overlay", samples.OVERLAYS, lambda path: overlay.read(str(path)))
    yield Target("failures", samples.FAILURES, _failures, weight=2)
    for name, seeds in samples.traces().items():
        yield Target(f"trace {name}", seeds, _trace_reader(name), weight=4)
    for form in fabrics.FORMATS:
        seeds = samples.topologies(form)
        yield Target(f"topology {form}", seeds, _topology_reader(form))
    for tool, seeds in samples.IMPORTS.items():
        yield Target(f"import {tool}", seeds, _importer(tool))
    yield Target("import python", samples.RECIPES, _recipe)
    yield Target("step table", samples.STEP_TABLES, _step_table, words=("H100", "GB200", "zero3"))
    yield Target("calibration", samples.CALIBRATIONS, _calibration)
    yield Target("nccl-tests", samples.NCCL_TESTS, _sizes)
    yield Target("rank report", samples.RANK_REPORTS, _report, (BadReport,), weight=3)
    yield Target("training log", samples.TRAINING_LOGS, _steps)
    yield from _texts()
    from drills.fuzz.hostile import hostile  # which makes targets

    yield from hostile()


def _texts() -> Iterator[Target]:
    """Yield targets that read a short text and not a file of its own."""
    job_fields, host_fields = listing._JOB_FIELDS, listing._host_fields(STATE)
    plain = (BadInput,)
    words = (*job_fields, *host_fields, "AND", "OR", "NOT", "!=", "<=", "RUNNING", "labels.team")
    yield Target(
        "filter",
        samples.FILTERS,
        lambda path: _filtered(path.read_bytes().decode(errors="replace")),
        (filters.BadFilter,),
        words,
        weight=4,
    )
    yield Target(
        "page token",
        samples.tokens(STATE),
        lambda path: listing.jobs(STATE, listing.Query(), 1, _text(path)),
        (paging.BadToken,),
        weight=3,
    )
    yield Target("hostlist", samples.HOSTLISTS, _hostlist, plain, weight=3)
    yield Target("spares", ("auto", "4", "2%"), _spares, plain, weight=3)
    yield Target(
        "condition",
        samples.CONDITIONS,
        lambda path: supposed(STATE, "b", [_text(path)], 0),
        plain,
        ("cordon", "drain", "fail", "cancel", "spares", "priority", "limit", "tenant", "class"),
        weight=3,
    )
    events = [codec.encode(event) for event in samples.events()]
    yield Target(
        "event",
        [f"{kind}\n{body}" for kind, body in events],
        lambda path: codec.decode(*_text(path).partition("\n")[::2]),
        (codec.UndecodableEvent,),
        weight=3,
    )
    yield Target(
        "snapshot",
        [snapshot_text(STATE)],
        lambda path: snapshots.decode(samples.deflated(path.read_bytes())),
        (snapshots.BadSnapshot,),
    )


def snapshot_text(state: State) -> str:
    return samples.inflated(snapshots.encode(state, 0)).decode()


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


def _hostlist(path: Path) -> object:
    return hostlist.expand(_text(path))


def _spares(path: Path) -> object:
    return parse_spares(_text(path))


def _old(path: Path) -> object:
    return load_placement(str(path), SMALL)


def _filtered(text: str) -> object:
    test = filters.parse(text, listing._JOB_FIELDS)
    return [test(job) for job in STATE.jobs.values()]


def _job(path: Path) -> object:
    """Read a job file, and check that it reads the same once written."""
    found = load_job(str(path))
    assert job_from_mapping(job_to_mapping(found)) == found
    return found


def _tenants(path: Path) -> object:
    found = load_tenants(str(path))
    found.check(LARGE)
    return found


def _windows(path: Path) -> object:
    """Read a file of windows and book them on a cluster, or refuse it with its line."""
    found = load_windows(str(path))
    return found.booked(SMALL, None, 1_700_000_000_000_000_000)


def _server(path: Path) -> object:
    return load_server_file(str(path))


def _failures(path: Path) -> object:
    source = failures.parse(str(path))
    return list(source(SMALL, 1))


def _put_into_words(_: Path, bad: BadRecord) -> None:
    str(bad)


def _trace_reader(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        return list(TraceFile(path, FORMATS[name], _put_into_words))

    return read


def _topology_reader(form: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        built = fabrics.read_fabric(str(path), form)
        return from_spec(built.fabric.spec)

    return read


def _importer(tool: Tool) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        return import_job(str(path), tool, Given(gpus=8)).checked()

    return read


def _recipe(path: Path) -> object:
    """By its suffix, as a user gives it."""
    recipe = path.with_suffix(".py")
    recipe.write_bytes(path.read_bytes())
    return import_job(str(recipe), None, Given(gpus=64)).checked()


def _step_table(path: Path) -> object:
    return [step_table_estimated(row) for row in read_table(str(path))]


def _sizes(path: Path) -> object:
    found = read_sizes(str(path))
    assert all(isfinite(part) for row in found.rows for part in row[1:])
    return found


def _steps(path: Path) -> object:
    found = read_steps(str(path), 8192.0)
    assert all(0 < seconds < inf for seconds in found.seconds)
    return found


def _report(path: Path) -> object:
    """As the agent reads it, up to the message that it sends."""
    said = parse_report(path.read_bytes()[:MOST_SAID])
    return agent_pb2.Progress(
        step=said.step,
        checkpoint_step=said.checkpoint_step,
        checkpoint=said.checkpoint,
        busy=said.busy,
        total_steps=said.total,
        loss=said.loss,
    ).SerializeToString()


def _calibration(path: Path) -> object:
    """Read a calibration by a fabric file that names it."""
    named = path.with_name("fabric.yaml")
    named.write_text(
        "name: lab\ngpus_per_host: 8\ngpu: H100\nnic_gbps: 400\n"
        f"tiers: [{{name: zone, count: 2}}, {{name: host, count: 4}}]\ncalibration: {path.name}\n"
    )
    return load_fabric(str(named))
