"""What `submit` says beside the job file: `--name` and `--array`, and what keeps a job from being
considered for now: `--hold`, `--begin`, `--dependency`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from muster.structs import replace
from placement import BadInput
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.job_array import parse_array
from scheduler.core.names import NAME_RULE, is_name
from scheduler.files.job_keys import parse_dependencies, resume_run
from scheduler.files.timeparse import parse_moment

if TYPE_CHECKING:
    from scheduler.core import JobSpec


def with_options(
    spec: JobSpec, name: str, begin: str, dependency: str, array: str, *, hold: bool
) -> JobSpec:
    """Return the specification `spec` with what the options say; without an option, the job file
    holds."""
    if name:
        if not is_name(name):
            raise typer.BadParameter(f"{NAME_RULE}, not {name!r}", param_hint="--name")
        spec = replace(spec, name=name)
    if begin:
        spec = replace(spec, begin_ns=begin_ns(begin))
    if dependency:
        spec = replace(spec, dependencies=dependencies(dependency))
    if array:
        try:
            spec = replace(spec, array=parse_array(array))
        except BadInput as error:
            raise typer.BadParameter(error.message, param_hint="--array") from None
    return replace(spec, hold=spec.hold or hold)


def with_run(spec: JobSpec, resume_from: str, *, new_run: bool) -> JobSpec:
    """Return `spec` with what the options say of the run that it continues."""
    if not (resume_from or new_run):
        return spec
    option = "--resume-from" if resume_from else "--new-run"
    if resume_from and new_run:
        raise typer.BadParameter("conflicts with --resume-from", param_hint="--new-run")
    if spec.run is None:
        raise typer.BadParameter("is for a job whose file has `run`", param_hint=option)
    try:
        checked = resume_run(resume_from) if resume_from else ""
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint=option) from None
    return replace(spec, run=replace(spec.run, new_run=new_run, resume_from=checked))


def begin_ns(text: str) -> int:
    """Parse a begin time into ns. Raises: typer.BadParameter."""
    try:
        return parse_moment(text, time.time_ns()) // 10**9 * 10**9
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint="--begin") from None


def dependencies(text: str) -> tuple[DependencyTerm, ...]:
    """Parse dependencies. Raises: typer.BadParameter."""
    try:
        terms = parse_dependencies(text)
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint="--dependency") from None
    return tuple(
        DependencyTerm(DependencyKind(term["kind"]), term.get("job", "")) for term in terms
    )
