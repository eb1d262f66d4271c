"""The options of Megatron-LM in a launch script or a line of arguments.

Names: megatron/training/arguments.py of NVIDIA/Megatron-LM, and torchrun's two that say
how many processes run. Dashes and underscores are the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from importers.jobs.draft import Draft, Origin
from importers.jobs.scripts.command import ranks_of_mpi
from importers.jobs.scripts.shell import Script, Word, read_script


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHORT = {  # of sbatch
    **{"N": "nodes", "G": "gpus", "J": "job-name", "t": "time", "a": "array", "p": "partition"},
    **{"A": "account", "d": "dependency", "o": "output", "e": "error", "x": "exclude"},
    **{"w": "nodelist", "C": "constraint", "D": "chdir", "n": "ntasks", "c": "cpus-per-task"},
    **{"b": "begin", "q": "qos"},
}
# What bears on shape, bytes or memory and has no key in a job file.
TELLING = re.compile(
    "parallel|pipeline|fsdp|shard|expert-|layers|rampup|recompute|offload|fp8|mtp|mamba"
    "|hybrid|encoder|decoder|vpp|gtp|-dtype|fp4|precision|window|linear-attention|overlap"
    "|optimizer|restart|delay-wgrad"
)
# ... and what only looks like it.
SILENT = re.compile(
    "timeout|jit|impl|recompute-method|recompute-num-layers|no-async"
    "|ckpt|checkpoint|save|(?<!off)load|tokenizer|dataset|deterministic|log-|init-model"
)


_TELLTALE = _names("""
    num-layers hidden-size num-attention-heads tensor-model-parallel-size
    pipeline-model-parallel-size num-query-groups ffn-hidden-size
""")
_NODE_COUNT = re.compile(r"(?:\$\(|`)\s*scontrol show hostnames?[^`)\n]*\|\s*wc -l\s*[`)]")
MEETING = re.compile(r"--(nnodes|nproc-per-node|node-rank|master-(addr|port)|rdzv-\w+|standalone)?")


@dataclass(slots=True)
class Options:
    """The options of a command, by name without dashes; of repeated ones the last counts.

    `draft` takes the faults. `read`: names that were asked for. `batch`: what the script asks Slurm
    for.
    """

    draft: Draft
    words: dict[str, Word] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    batch: dict[str, Word] = field(default_factory=dict)
    script: Script = field(default_factory=Script)

    @property
    def is_megatron(self) -> bool:
        """Whether these are options of Megatron-LM, and not of any program."""
        return not _TELLTALE.isdisjoint(self.words)

    @property
    def is_surely_megatron(self) -> bool:
        """Whether there are more options of Megatron-LM than the one name that other programs have
        too."""
        return bool(_TELLTALE.intersection(self.words) - {"num-layers"})

    def origin(self, name: str) -> Origin:
        word = self.words.get(name)
        return Origin(f"--{name}", word.line if word else 0)

    def has(self, name: str) -> bool:
        self.read.add(name)
        return name in self.words

    def text(self, name: str, default: str = "") -> str:
        return self.words[name].text if self.has(name) else default

    @property
    def unread(self) -> list[Word]:
        """The options that nobody asked for."""
        words = self.words.items()
        return [Word(f"--{name}", word.line) for name, word in words if name not in self.read]

    def number(self, name: str, default: int = 0) -> int:
        if not self.has(name):
            return default
        text = self.words[name].text
        if match := re.fullmatch(r"(\d{1,18})(?::\1)?", text):  # torchrun's MIN:MAX
            return int(match[1])
        reason = "it is missing" if not text else f"not {text!r}"
        hint = ""
        if variable := re.search(r"\$\{?(\w+)", text):
            hint = f"; --env {variable[1]}=... gives its value"
        elif name in ("nnodes", "nproc-per-node"):
            hint = "; --gpus says how many GPUs run"
        self.draft.fault(self.origin(name), f"must be a whole number, {reason}{hint}")
        return max(default, 1)

    def required(self, name: str, key: str) -> int:
        """Return the number of an option, else what the user gives for the key of the job file."""
        given = self.draft.values.get(key)
        if not self.has(name) and isinstance(given, int):
            return given
        if not self.has(name):
            self.draft.fault(Origin(f"--{name}"), "is missing")
            return 1
        return self.number(name)

    def put(self, key: str, value: object, name: str) -> None:
        self.draft.put(key, value, self.origin(name))


def read_options(draft: Draft, text: str, environment: Mapping[str, str]) -> Options:
    """Read the options of the launch commands; where these have none, of all variables. Raises:
    InputError."""
    batch = batch_options(text)
    text = _NODE_COUNT.sub("${SLURM_NNODES}", text)
    script = read_script(text, draft.source, {**_slurm_variables(batch), **environment})
    if not script.is_certain or "case" in {word.text for word in script.commands}:
        draft.note(
            "the script has conditions on values that are not known here: all their branches were"
            " read, and the last value counts; --env NAME=VALUE decides them"
        )
    options = _collected(draft, script.commands)
    if not options.is_megatron:
        words = [word for value in script.variables.values() for word in value]
        others = _collected(draft, words)
        options = others if others.is_megatron else options
    options.batch, options.script = batch, script
    return options


def batch_options(text: str) -> dict[str, Word]:
    """Return the #SBATCH lines of a batch script, by long option."""
    words: dict[str, Word] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#SBATCH"):
            for name, value in _sbatch_options(line.removeprefix("#SBATCH")):
                words[name] = Word(value, number)
    return words


def _sbatch_options(row: str) -> Iterator[tuple[str, str]]:
    """Long option and value of `-N 2 --segment=16 -J"a b"  # why`."""
    try:
        tokens = shlex.split(row)
    except ValueError:  # a quote that is never closed
        tokens = row.split()
    tokens = list(takewhile(lambda token: not token.startswith("#"), tokens))
    for token, following in zip(tokens, [*tokens[1:], "-"], strict=True):
        match = re.fullmatch(r"--([a-z][a-z-]*)(?:=(.*))?|-([A-Za-z])(.*)", token)
        if match is None:
            continue  # the value of the option before it
        name = match[1] or _SHORT.get(match[3], match[3])
        value = match[2] if match[1] else match[4].removeprefix("=")
        yield name, value or ("" if following.startswith("-") else following)


def _slurm_variables(batch: Mapping[str, Word]) -> dict[str, str]:
    """Variables that Slurm sets in the job from these options."""
    variables = {}
    for name, option in (("SLURM_NNODES", "nodes"), ("SLURM_JOB_NUM_NODES", "nodes")):
        if option in batch:
            variables[name] = batch[option].text
    if gpus := _gpus_per_node(batch):
        variables["SLURM_GPUS_ON_NODE"] = variables["SLURM_GPUS_PER_NODE"] = str(gpus)
    if "ntasks-per-node" in batch:
        variables["SLURM_NTASKS_PER_NODE"] = batch["ntasks-per-node"].text
    return variables


def _gpus_per_node(batch: Mapping[str, Word]) -> int:
    """`--gpus-per-node=[TYPE:]8` or `--gres=gpu:[TYPE:]8`; 0: it is not said."""
    for name, pattern in (
        ("gpus-per-node", r"(?:\w+:)?(\d{1,6})"),
        ("gres", r"gpu:(?:\w+:)?(\d{1,6})"),
    ):
        if name in batch and (match := re.fullmatch(pattern, batch[name].text)):
            return int(match[1])
    return 0


def _collected(draft: Draft, words: list[Word]) -> Options:
    options = Options(draft)
    for word, following in pairwise([*words, Word("--", 0)]):
        if word.text.startswith("--"):
            name, equals, value = word.text[2:].partition("=")
            if not equals and not following.text.startswith("--"):
                value = following.text
            options.words[name.replace("_", "-")] = Word(value, word.line)
    return options


def ranks_of(options: Options) -> int:
    """Return the number of ranks: hosts times processes of torchrun, or those of mpirun; without
    them, GPUs of the batch script. 0 where none says it."""
    if options.has("nproc-per-node"):
        return options.number("nproc-per-node") * options.number("nnodes", 1)
    if ranks := ranks_of_mpi(options.script):
        return ranks
    nodes = options.batch.get("nodes")
    if nodes is not None and re.fullmatch(r"\d{1,6}", nodes.text):
        return int(nodes.text) * _gpus_per_node(options.batch)
    gpus = options.batch.get("gpus")
    return int(gpus.text) if gpus is not None and re.fullmatch(r"\d{1,6}", gpus.text) else 0


def limit_seconds(text: str) -> int:
    """Parse a time limit of sbatch, minutes, m:s, h:m:s, or days and -h[:m[:s]]; 0 for none."""
    match = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,3}))?(?::(\d{1,3}))?", text)
    if match is None:
        return 0
    days, *rest = (int(part) if part else 0 for part in match.groups())
    if match[1] is not None or match[4] is not None:
        hours, minutes, seconds = rest
    else:
        hours, minutes, seconds = 0, *rest[:2]
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def unrepresented(options: Options) -> list[Word]:
    """Return the options that were not read and bear on shape, bytes or memory."""
    return [w for w in options.unread if TELLING.search(w.text) and not SILENT.search(w.text)]


def program_options(options: Options) -> list[str]:
    """Return the options that were not read and bear on no key of a job file, as far as known."""
    told = {word.text for word in unrepresented(options)}
    names = (word.text for word in options.unread if word.text not in told)
    return list(dict.fromkeys(name for name in names if not MEETING.fullmatch(name)))
