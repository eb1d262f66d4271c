"""`run` of a job file, from the command that a launch script starts its ranks with.

torchrun's options of who is who go: the agents of muster give each host its place. What a run
alone can tell, a variable of the environment or the output of a command, is not guessed: then the
script has no `run`, and why is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Final

from importers.jobs.draft import Draft, Origin
from importers.jobs.scripts.shell import Script, Word
from muster.structs import struct
from scheduler.core.policies.job_terms import RANK_VARIABLES

_MEETING: Final = re.compile(
    r"--(nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_](addr|port)|rdzv[-_]\w+|standalone"
    r"|local[-_](addr|ranks[-_]filter))(?=$|=)"
)
_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_ALONE: Final = frozenset(  # options of torchrun without a value
    {"--standalone", "--no-python", "--no_python", "--run-path", "--run_path", "-m", "--module"}
)
_REDIRECTION: Final = re.compile(r"[0-9]?[<>].*")
_MPI: Final = frozenset({"mpirun", "mpiexec", "orterun"})
_MPI_RANKS: Final = ("-np", "-n", "--np", "-c")
# Who is who, which muster says, and variables, which are read as such.
_MPI_MEETING: Final = (*_MPI_RANKS, "-x", "-H", "--host", "-hostfile", "--hostfile", "-N")
_CONFIG: Final = re.compile(r"(?:--[\w.-]+=)?([^\s=$]+\.(?:toml|ya?ml|json))")
_PLAIN: Final = frozenset(
    {
        *("cd", "echo", "set", "mkdir", "wait", "export", "date", "hostname", "unset", "ulimit"),
        *("sleep", "exit", "tee"),
    }
)
_OWN_ARGUMENTS: Final = ("$@", "${@}", "$*", "${*}")
_WITH_VALUE: Final = ("--container-image", "--container-mounts", "--bind", "-B")
_OF_EVERY_RANK: Final = ("--nv", "--rocm")  # where a host has such GPUs
_SEARCH: Final = "/usr/local/bin:/usr/bin:/bin"


@struct(frozen=True, slots=True)
class LaunchCommand:
    """The command that starts the ranks. `words`: from the program that starts the ranks on.
    `before`: its wrapper. `is_launcher`: it starts the ranks of a host by itself."""

    words: tuple[Word, ...]
    before: tuple[Word, ...]
    is_launcher: bool


def has_commands(script: Script) -> bool:
    """Return whether the text is a script, rather than a line of options alone."""
    return any(not words[0].text.startswith("-") for words in script.lines)


def launch_command(script: Script) -> LaunchCommand | None:
    """Return the last command of a script that starts ranks; None where it has none."""
    found = None
    for words in script.lines:
        for at, word in enumerate(words):
            program = PurePosixPath(word.text).name
            module = [each.text for each in words[at + 1 : at + 3]]
            is_run = program == "torchrun" or module in [["-m", name] for name in _MODULES]
            if is_run or (program.startswith("python") and len(words) > at + 1):
                found = LaunchCommand(tuple(words[at:]), tuple(words[:at]), is_run)
                break
    return found


def ranks_of_mpi(script: Script) -> int:
    """Return how many ranks mpirun starts; 0 where the script says no number of them."""
    launch = launch_command(script)
    texts = [word.text for word in launch.before] if launch is not None else []
    if _MPI.isdisjoint(PurePosixPath(text).name for text in texts):
        return 0
    pairs = pairwise(texts)
    ranks = (v for option, v in pairs if option in _MPI_RANKS and re.fullmatch(r"\d{1,7}", v))
    return int(next(ranks, 0))


def unread_launcher(script: Script) -> Word | None:
    """Return the program, deepspeed or accelerate, by which a script starts ranks after any command
    that is read; None where it does not."""
    launch, found = launch_command(script), None
    for words in script.lines:
        if launch is not None and words[-len(launch.words) :] == list(launch.words):
            found = None
            continue
        for at, word in enumerate(words):
            program, rest = PurePosixPath(word.text).name, [each.text for each in words[at + 1 :]]
            is_accelerate = program == "accelerate" and rest[:1] == ["launch"]
            is_deepspeed = program == "deepspeed" and any(text.endswith(".py") for text in rest)
            if is_accelerate or is_deepspeed:
                found = found or word
    return found


def configurations(script: Script) -> list[Word]:
    """Return the files that the command of a script gives its program to read."""
    launch = None if unread_launcher(script) is not None else launch_command(script)
    words = launch.words if launch is not None else [w for line in script.lines for w in line]
    found = ((_CONFIG.fullmatch(word.text), word.line) for word in words)
    return [Word(match[1], line) for match, line in found if match is not None]


def put_run(
    draft: Draft, script: Script, batch: Mapping[str, Word], workdir: str, *, one_a_host: bool
) -> None:
    """Write what the script starts into the draft, or say why that is not known. `workdir`: where
    the script is started. `one_a_host`: Slurm starts one task on a host."""
    launch = launch_command(script)
    _note_commands(draft, script, launch)
    if launch is None:
        draft.note("no run: the script has no command of torchrun or python that starts ranks")
        return
    words = list(_without_redirections(launch))
    for word in words:
        if word.text in _OWN_ARGUMENTS:
            draft.note(f"not represented: {word.text} (line {word.line}): what the script is given")
    words = [word for word in words if word.text not in _OWN_ARGUMENTS]
    if unknown := [word for word in words if "$" in word.text]:
        first = unknown[0]
        draft.note(
            f"no run: {first.text} (line {first.line}) is known to a run of the script alone;"
            " --env NAME=VALUE gives a variable"
        )
        return
    origin = Origin(words[0].text, words[0].line)
    draft.put("run.command", [word.text for word in words], origin)
    if launch.is_launcher or one_a_host:
        draft.put("run.per_host", 1, origin)
    if env := _environment(draft, script, launch.before):
        draft.put("run.env", env, origin)
    place = batch["chdir"].text if "chdir" in batch else _entered(script) or workdir
    if place.startswith("/"):
        draft.put("run.workdir", place, origin)
    _put_container(draft, launch.before, batch, place)


def _put_container(
    draft: Draft, wrapper: tuple[Word, ...], batch: Mapping[str, Word], folder: str
) -> None:
    """Write the image and mounts of pyxis, or of `apptainer exec`, and say what else is left out of
    the `wrapper`. `folder`: in which paths of images begin."""
    programs = [PurePosixPath(word.text).name for word in wrapper]
    is_apptainer = bool({"apptainer", "singularity"} & {*programs}) and "exec" in programs
    image = wrapper[-1] if is_apptainer and not wrapper[-1].text.startswith("-") else None
    mounts = list[Word]()
    known = (*_OF_EVERY_RANK, *(_MPI_MEETING if _MPI & {*programs} else ()))
    words = [*_options(wrapper), *((f"--{name}", word) for name, word in batch.items())]
    for name, word in words:
        if name == "--container-image":
            image = Word(word.text.replace("#", "/"), word.line)
        elif name == "--container-mounts" or (is_apptainer and name in ("--bind", "-B")):
            mounts += [Word(part, word.line) for part in word.text.split(",")]
        elif name.removeprefix("--") not in batch and name not in known:
            shown = f"{name}={word.text}" if word.text else name
            draft.note(f"not represented: {shown} of the wrapper (line {word.line})")
    if image is None:
        return
    text = image.text
    if "$" in text or "://" in text.removeprefix("docker://"):
        draft.note(f"not represented: the container {text} (line {image.line})")
        return
    if text.endswith((".sif", ".sqsh")) and not text.startswith("/"):
        text = str(PurePosixPath(folder or "/") / text)
    container: dict[str, Any] = {"image": text}
    for mount in mounts:
        source, *rest = mount.text.split(":")
        flags = rest[1].split("+") if len(rest) > 1 else []
        if source.startswith("/") and "$" not in mount.text:
            parts = [source, rest[0] if rest else source, *(["ro"] if "ro" in flags else [])]
            container.setdefault("mounts", []).append(":".join(parts))
        else:
            draft.note(f"not represented: the mount {mount.text} (line {mount.line})")
    draft.put("run.container", container, Origin(image.text, image.line))


def _options(words: tuple[Word, ...]) -> Iterator[tuple[str, Word]]:
    """The options of a wrapper and their values, "" where the next word is no value of one."""
    for place, word in enumerate(words):
        name, has_value, value = word.text.partition("=")
        if not name.startswith("-"):
            continue
        is_apart = not has_value and (name in _WITH_VALUE and place + 1 < len(words))
        yield name, Word(words[place + 1].text if is_apart else value, word.line)


def _without_redirections(launch: LaunchCommand) -> Iterator[Word]:
    """The words of the command without redirections, and without where ranks meet."""
    skips = is_value = False
    is_option = launch.is_launcher
    for place, word in enumerate(launch.words):
        if _REDIRECTION.fullmatch(word.text):
            return
        if skips:
            skips = False
            continue
        if place and is_option and word.text in ("-m", *_MODULES):
            yield word
            continue
        if place and is_option and (match := _MEETING.match(word.text)):
            skips = "=" not in word.text and match[0] not in _ALONE
            continue
        if place and is_option and not word.text.startswith("-") and not is_value:
            is_option = False  # the program: the rest is its own
        is_value = word.text.startswith("-") and "=" not in word.text and word.text not in _ALONE
        yield word


def _environment(draft: Draft, script: Script, before: tuple[Word, ...]) -> dict[str, str]:
    """Exported variables whose values are known, the PATH of a virtual environment, and what stands
    before the program, but for what muster sets."""
    given = [
        (name, " ".join(word.text for word in script.variables.get(name, [])), line, "export ")
        for name, line in sorted(script.exports.items())
    ]
    for word in before:
        name, equals, value = word.text.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            given.append((name, value, word.line, ""))
    env: dict[str, str] = {}
    for name, value, line, how in given:
        if name in RANK_VARIABLES or name.startswith("MUSTER_"):
            continue
        if "$" in value or "`" in value:
            draft.note(f"not represented: {how}{name}={value} (line {line}): not known here")
        else:
            env[name] = value
    for texts in ([word.text for word in words] for words in script.lines):
        if _is_activation(texts) and len(texts) == 2 and "PATH" not in env:
            env["PATH"] = f"{texts[1].removesuffix('/activate')}:{_SEARCH}"
    return env


def _is_activation(texts: list[str]) -> bool:
    """Return whether a command enters a virtual environment."""
    is_sourced = texts[0] in ("source", ".")
    return is_sourced and texts[-1].startswith("/") and texts[-1].endswith("/bin/activate")


def _entered(script: Script) -> str:
    """The directory that the script last enters."""
    places = [words[1].text for words in script.lines if len(words) == 2 and words[0].text == "cd"]
    return places[-1] if places and "$" not in places[-1] else ""


def _note_commands(draft: Draft, script: Script, launch: LaunchCommand | None) -> None:
    """Say which commands of the script a job does not carry out."""
    for words in script.lines:
        first = words[0]
        if launch is not None and words[-len(launch.words) :] == list(launch.words):
            continue
        is_activated = _is_activation([word.text for word in words])
        if first.text in _PLAIN or is_activated or first.text.startswith(("[", "-")):
            continue
        text = " ".join(word.text for word in words[:4])
        more = " ..." if len(words) > 4 else ""
        draft.note(f"not represented: the command `{text}{more}` (line {first.line})")


def batch_notes(draft: Draft, batch: Mapping[str, Word]) -> None:
    """Note options of a batch script that a job file has in another form, and name the rest."""
    has_run = "run.command" in draft.values
    for name, word in batch.items():
        origin = Origin(f"#SBATCH --{name}", word.line)
        if name in _READ:
            continue
        if name == "segment" and word.text.isdecimal():
            draft.put("constraints.segment", int(word.text), origin)
        elif name == "switches" and word.text.partition("@")[0].isdecimal():
            draft.put("constraints.max_zones", int(word.text.partition("@")[0]), origin)
            draft.note(
                f"--switches={word.text} (line {word.line}) counts leaf switches, max_zones the"
                " outermost domains; `same: rack` keeps the gang in one of an inner tier"
            )
        elif name == "signal" and has_run and (match := re.fullmatch(r".*@(\d{1,6})", word.text)):
            draft.put("run.warn_s", int(match[1]), origin)
            draft.note(
                f"--signal={word.text} (line {word.line}): so early `muster.progress.should_save`"
                " is true; no signal is sent before SIGTERM"
            )
        elif name == "no-requeue":
            draft.put("requeue", "never", origin)
        elif name == "requeue":
            continue  # as every job
        elif name == "dependency" and word.text == "singleton":
            draft.put("dependencies", "singleton", origin)
        elif name == "begin" and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", word.text):
            draft.put("begin_time", word.text, origin)
        else:
            value = f"={word.text}" if word.text else ""
            hint = _HINTS.get(name, "")
            draft.note(
                f"not represented: #SBATCH --{name}{value} (line {word.line})"
                + (f": {hint}" if hint else "")
            )


_READ: Final = frozenset(
    {
        *("nodes", "gpus", "gpus-per-node", "gres", "job-name", "time", "array", "chdir"),
        *("ntasks-per-node", "container-image", "container-mounts"),
    }
)
_HINTS: Final = {
    "dependency": "`dependencies: afterok:NAME` waits for a job of muster",
    "begin": "`muster submit --begin +1h`",
    "account": "a tenant, `tenant: NAME`, where the server has one of this name",
    "exclude": "cordon the hosts, or give others a label for `constraints.hosts`",
    "nodelist": "`constraints.hosts` takes labels",
    "constraint": "`constraints.hosts` takes labels",
    "output": "`muster logs` has what ranks write",
    "error": "`muster logs` has what ranks write",
    "partition": "",
}
