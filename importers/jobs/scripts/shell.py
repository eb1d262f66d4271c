"""The words of a shell script, variables filled in, each with its line. Nothing is run.

Enough of the shell for launch scripts: quotes, continued lines, comments, assignments
(also of arrays, and with +=), `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME:=default}`,
`${NAME[@]}` and `$((arithmetic))`. What `bash -c` is given is read as commands.
A string with blanks becomes several words wherever it is used, as it does unquoted. What only
a run could tell (`$(command)`, `$1`, a variable of the environment) stays as it is written, so
that who needs the value can name it. Of a condition that follows from known
values (`[ $SIZE = 8B ]`, `[[ -z $VP ]]`) the branch that holds is read; of any other all
branches are, and the last assignment counts.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from muster.structs import struct
from scheduler.files.errors import InputError, Problem

MOST_WORDS = 100_000  # that a word may stand for
MOST_LETTERS = 1_000_000

_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?(?::?([-=])(.*?))?\})", re.DOTALL)
_NAME = re.compile(r"\$?\{?([A-Za-z_]\w*)\}?")
_ARGUMENT = re.compile(r"\$(?:(\d)|\{(\d+)\})")
_ENDS = "\n;|&()"
_BLANK = "\ue000"  # stands for one in quotes
_BEFORE_ASSIGNMENTS = ("export", "declare", "local", "readonly", "then", "else", "do", "{")
_SHELLS = ("bash", "sh")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS = {"-lt": operator.lt, "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge}


@struct(frozen=True, slots=True)
class Word:
    text: str
    line: int


@dataclass(slots=True)
class Script:
    """A shell script that was read without running it. `variables`: as last set. `lines`: the
    commands one by one, in which a literal in quotes is one word. `exports`: lines of variables
    that commands find. `is_certain`: every condition followed from known values."""

    variables: dict[str, list[Word]] = field(default_factory=dict)
    commands: list[Word] = field(default_factory=list)
    lines: list[list[Word]] = field(default_factory=list)
    exports: dict[str, int] = field(default_factory=dict)
    is_certain: bool = True


@dataclass(slots=True)
class _Condition:
    """An `if` that is open. `holds`: of the branch that is read; None: it is not known.
    `is_done`: a branch before it held. `test`: words of its condition, until `then`."""

    holds: bool | None = None
    is_done: bool = False
    test: list[Word] | None = field(default_factory=list)

    @property
    def is_read(self) -> bool:
        return self.test is None and self.holds is not False and not self.is_done


def read_script(text: str, source: str, environment: Mapping[str, str]) -> Script:
    """Read the words of `text`; `environment` holds variables that it expects to be set.

    Raises: InputError on a quote that is never closed, or on variables that grow too large.
    """
    reader = _Reader(text, source)
    script = Script({name: _split(value, 0) for name, value in environment.items()})
    fixed = set(environment)
    is_start, is_export = True, False
    open_ifs: list[_Condition] = []
    line: list[Word] = []
    shift = 0
    for marked in (*reader.words(), None):
        if marked is None:
            is_start, is_export = True, False
            if line and line[0].text == "shift":
                shift += int(line[1].text) if line[1:] and line[1].text.isdecimal() else 1
            if line:
                script.lines += _commands(line, source)
            line = []
            continue
        if shift:
            marked = Word(_later_arguments(marked.text, shift), marked.line)
        raw = Word(marked.text.replace(_BLANK, " "), marked.line)
        if is_start and _turns(script, open_ifs, raw.text):
            continue
        if open_ifs and open_ifs[-1].test is not None:
            open_ifs[-1].test += _tested(raw, script.variables, source)
            is_start = False
            continue
        if not all(each.is_read for each in open_ifs):
            is_start = False
            continue
        assigned = _ASSIGNS.match(raw.text) if is_start else None
        if assigned:
            _assign(script, assigned, raw, fixed, source)
            if is_export:
                script.exports[assigned[1]] = raw.line
        elif is_start and raw.text in _BEFORE_ASSIGNMENTS:
            is_export |= raw.text == "export"
        elif is_export and re.fullmatch(r"\w+", raw.text):
            script.exports[raw.text] = raw.line
        else:
            script.commands += _expand(raw, script.variables, source)
            whole = _expand(marked, script.variables, source)
            line += [Word(word.text.replace(_BLANK, " "), word.line) for word in whole]
            is_start = False
    return script


def _later_arguments(text: str, shift: int) -> str:
    """Return the text with the arguments of the script ($1) called as before `shift`."""
    return _ARGUMENT.sub(lambda found: f"${{{int(found[1] or found[2]) + shift}}}", text)


def _commands(line: list[Word], source: str) -> list[list[Word]]:
    """Return the command, or those that it has a shell carry out (`bash -c "..."`), of which the
    last one keeps the words before the shell."""
    texts = [word.text for word in line]
    for at in range(len(texts) - 2):
        if PurePosixPath(texts[at]).name in _SHELLS and re.fullmatch(r"-\w*c", texts[at + 1]):
            break
    else:
        return [line]
    inner: list[list[Word]] = [[]]
    try:
        for word in _Reader(" ".join(texts[at + 2 :]), source, line[at + 2].line).words():
            if word is None:
                inner.append([])
            else:
                inner[-1].append(Word(word.text.replace(_BLANK, " "), word.line))
    except InputError:  # a quote that only the shell itself understands
        return [line]
    commands = [command for command in inner if command]
    return [*commands[:-1], [*line[:at], *commands[-1]]] if commands else [line]


def _turns(script: Script, open_ifs: list[_Condition], word: str) -> bool:
    """Whether `word` begins, turns or ends a condition; `open_ifs` follows it."""
    if word == "if":
        open_ifs.append(_Condition())
    elif not open_ifs or word not in ("then", "elif", "else", "fi"):
        return False
    elif word == "then":
        last = open_ifs[-1]
        last.holds, last.test = _holds(last.test or []), None
        if all(each.is_read for each in open_ifs[:-1]):
            script.is_certain &= last.holds is not None
    elif word == "fi":
        open_ifs.pop()
    else:
        last = open_ifs[-1]
        last.is_done |= last.holds is True
        last.holds, last.test = True if word == "else" else None, None if word == "else" else []
    return True


def _tested(raw: Word, variables: dict[str, list[Word]], source: str) -> list[Word]:
    """A word of a condition: nothing is no word less, as if it were in quotes."""
    return [Word(" ".join(word.text for word in _expand(raw, variables, source)), raw.line)]


def _holds(words: list[Word]) -> bool | None:
    """Whether a test of one clause holds; None where a value of it is not known."""
    texts = [word.text for word in words]
    if len(texts) < 3 or (texts[0], texts[-1]) not in (("[", "]"), ("[[", "]]")):
        return None
    clause = texts[1:-1]
    if clause[0] != "!":
        return _clause(clause)
    inner = _clause(clause[1:])
    return None if inner is None else not inner


def _clause(texts: list[str]) -> bool | None:
    match texts:
        case ["-z", text]:
            return None if "$" in text else not text
        case ["-n", text]:
            return None if "$" in text else bool(text)
        case [left, ("=" | "==" | "-eq" | "!=" | "-ne") as relation, right]:
            if "$" in left or "$" in right or "*" in right:
                return None
            return (left == right) is (relation in ("=", "==", "-eq"))
        case [left, ("-lt" | "-le" | "-gt" | "-ge") as relation, right]:
            if not (left.isdecimal() and right.isdecimal()):
                return None
            return bool(_COMPARISONS[relation](int(left), int(right)))
    return None


def _assign(
    script: Script, assigned: re.Match[str], raw: Word, fixed: set[str], source: str
) -> None:
    name, adds = assigned.groups()
    if name in fixed:
        return
    content = raw.text[assigned.end() :]
    if content.startswith("(") and content.endswith(")"):
        inner = _Reader(content[1:-1], source, raw.line).words()
        parts = [part for part in inner if part is not None]
    elif re.fullmatch(r"\$\([^(].*\s.*\)", content, re.DOTALL):
        parts = [Word("$(...)", raw.line)]  # what a command says is one value
    else:
        parts = [Word(content, raw.line)]
    words = [word for part in parts for word in _expand(part, script.variables, source)]
    script.variables[name] = [*script.variables.get(name, []), *words] if adds else words


class _Reader:
    """Raw words: quotes taken off, expansions left in. None ends a command."""

    def __init__(self, text: str, source: str, line: int = 1) -> None:
        self.text = text
        self.source = source
        self.at = 0
        self.line = line

    def words(self) -> Iterator[Word | None]:
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "#":
                self._skip_comment()
            elif c in _ENDS:
                self._advance(1)
                yield None
            elif c.isspace():
                self._advance(1)
            elif self.text.startswith("\\\n", self.at):
                self._advance(2)
            else:
                line = self.line
                yield Word(self._word(), line)

    def _word(self) -> str:
        parts: list[str] = []
        while self.at < len(self.text):
            c = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                self._advance(2)
                continue
            if c == "(" and parts and parts[-1].endswith("="):
                parts.append(self._bracketed(")"))
            elif self.text.startswith("$(", self.at):
                self._advance(1)
                parts.append("$" + self._bracketed(")"))
            elif self.text.startswith("${", self.at):
                self._advance(1)
                parts.append("$" + self._bracketed("}"))
            elif c in "\"'`":
                parts.append(self._quoted(c))
            elif c == "&" and parts and parts[-1] == ">":
                parts.append(self._advance(1))  # 2>&1
            elif c.isspace() or c in _ENDS:
                break
            elif c == "\\":
                self._advance(1)
                parts.append(self._advance(1))
            else:
                parts.append(self._advance(1))
        return "".join(parts)

    def _quoted(self, quote: str) -> str:
        begin = self.line
        self._advance(1)
        parts = []
        while self.text[self.at : self.at + 1] != quote:
            if self.at >= len(self.text):
                raise InputError(Problem("", f"{quote} is never closed", self.source, begin))
            if quote == '"' and self.text.startswith("\\\n", self.at):
                # A blank, and the line kept: what follows has a line of its own.
                self._advance(2)
                parts.append(" \n")
            elif quote == '"' and self.text[self.at] == "\\":
                self._advance(1)
                parts.append(self._advance(1))
            else:
                c = self._advance(1)
                parts.append(_BLANK if c == " " and quote != "`" else c)
        self._advance(1)
        return "".join(parts) if quote != "`" else "$(...)"

    def _bracketed(self, close: str) -> str:
        """From an opening bracket to its partner, both included."""
        begin, start, opener = self.line, self.at, self.text[self.at]
        depth = 0
        while self.at < len(self.text):
            c = self._advance(1)
            if c == "#" and opener == "(" and self.text[self.at - 2] in " \n\t":
                self._skip_comment()
            depth += (c == opener) - (c == close)
            if not depth:
                return self.text[start : self.at]
        raise InputError(Problem("", f"{opener} is never closed", self.source, begin))

    def _skip_comment(self) -> None:
        end = self.text.find("\n", self.at)
        self._advance((len(self.text) if end < 0 else end) - self.at)

    def _advance(self, count: int) -> str:
        passed = self.text[self.at : self.at + count]
        self.line += passed.count("\n")
        self.at += count
        return passed


def _expand(raw: Word, variables: dict[str, list[Word]], source: str) -> list[Word]:
    """`raw` with its variables filled in, split at blanks.

    A value is taken as it was when it was set, so that no variable can refer to itself.
    """
    expanded: list[Word] = []
    for word in _split(raw.text, raw.line):
        arithmetic = re.fullmatch(r"\$\(\((.*)\)\)", word.text)
        if arithmetic:
            expanded.append(Word(_computed(arithmetic[1], variables) or word.text, word.line))
        else:
            expanded += _filled(word, variables, source)
    if len(expanded) > MOST_WORDS or sum(len(word.text) for word in expanded) > MOST_LETTERS:
        raise InputError(Problem("", "its variables expand to too much text", source, raw.line))
    return expanded


def _filled(word: Word, variables: dict[str, list[Word]], source: str) -> list[Word]:
    """One word without blanks: the first and last word of a value join what is around it."""
    words = [Word("", word.line)]
    end = 0
    for match in _VARIABLE.finditer(word.text):
        plain, braced, sign, default = match.groups()
        value = variables.get(plain or braced)
        if not value and default is not None:
            unquoted = (part for part in _Reader(default, source, word.line).words() if part)
            value = [each for part in unquoted for each in _expand(part, variables, source)]
            value = [Word(each.text.replace(_BLANK, " "), each.line) for each in value]
            if sign == "=":
                variables[braced] = value
        if value is None:
            continue
        _join(words, Word(word.text[end : match.start()], word.line))
        end = match.end()
        if value:
            _join(words, value[0])
            words += value[1:]
    _join(words, Word(word.text[end:], word.line))
    return [each for each in words if each.text]


def _join(words: list[Word], more: Word) -> None:
    """Append to the last word, which is on the line of its first part."""
    last = words[-1]
    words[-1] = Word(last.text + more.text, last.line if last.text else more.line)


def _split(text: str, line: int) -> list[Word]:
    """Words at blanks outside of `$((...))` and `${...}`, each with its line."""
    pieces = re.finditer(r"(?:\$\(\(.*?\)\)|\$\{.*?\}|[^\s])+", text)
    return [Word(piece[0], line + text.count("\n", 0, piece.start())) for piece in pieces]


def _computed(expression: str, variables: Mapping[str, list[Word]]) -> str | None:
    """The value of whole-number arithmetic; None when a part of it is not known."""
    known = {name: words[0].text for name, words in variables.items() if len(words) == 1}
    text = _NAME.sub(lambda match: known.get(match[1], match[1]), expression).strip()
    try:
        return str(_evaluated(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _evaluated(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            value = int(_OPERATORS[type(op)](_evaluated(left), _evaluated(right)))
            if abs(value) > 2**63:
                raise ValueError("too large")
            return value
    raise ValueError(ast.dump(node))
