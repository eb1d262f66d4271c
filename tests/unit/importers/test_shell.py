"""The words of launch scripts, without running any."""

import pytest

from importers.jobs.scripts.shell import read_script
from scheduler.files.errors import InputError


def words(text: str, **environment: str) -> list[str]:
    return [word.text for word in read_script(text, "run.sh", environment).commands]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run --a 1", ["run", "--a", "1"]),
        ("run --a \\\n  1  # two\n#three", ["run", "--a", "1"]),
        ("A=1\nrun $A ${A} \"$A\" '$B'x", ["run", "1", "1", "1", "$Bx"]),
        ("A='--b 2  --c'\nrun $A 3", ["run", "--b", "2", "--c", "3"]),
        ("A=(--b 2 # why\n --c)\nrun ${A[@]}", ["run", "--b", "2", "--c"]),
        ('A="--b \\\n 2"\nrun $A', ["run", "--b", "2"]),
        ("A=1; A+=2; run $A", ["run", "1", "2"]),
        ("A=(1)\nA+=(2 3)\nrun ${A[*]}", ["run", "1", "2", "3"]),
        ("export A=8 && run pre$A.$A", ["run", "pre8.8"]),
        ("run $1\nshift 2\nrun ${1} $10", ["run", "$1", "shift", "2", "run", "${3}", "${3}0"]),
        (': "${N:=4}" "${N:=5}"\nrun $N', [":", "4", "4", "run", "4"]),
        ("if [ 9 -le 8 ]; then A=1; elif [ 9 -ge 9 ]; then A=2; fi\nrun $A", ["run", "2"]),
        ("run ${N:-4} ${M-5} ${A:=6}", ["run", "4", "5", "6"]),
        ("N=4\nrun $(( N * 8 )) $(($N*2+1)) $((N/3))", ["run", "32", "9", "1"]),
        ("N=2\nM=$((N*4))\nrun $M", ["run", "8"]),
        ("if x; then A=7; fi\nrun $A", ["run", "7"]),
        ("run $UNSET $(date) `ls`", ["run", "$UNSET", "$(date)", "$(...)"]),
        ("A=\nrun $A end", ["run", "end"]),
        ("P=$P:/more\nrun $P", ["run", "$P:/more"]),
        ("A='x y'\nrun a$A-b", ["run", "ax", "y-b"]),
        ("B=2\nrun ${A:-$B}", ["run", "2"]),
        ('run "two words"', ["run", "two", "words"]),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert words(text) == found


SIZES = """
if [ $SIZE = 8B ]; then
  LAYERS=32
elif [[ "$SIZE" == "70B" ]]
then
  LAYERS=80; if [ -z ${VP} ]; then MORE=""; else MORE="--vp ${VP}"; fi
else
  LAYERS=1
fi
run $LAYERS $MORE
"""


@pytest.mark.parametrize(
    ("environment", "commands"),
    [
        ({"SIZE": "8B"}, ["run", "32", "$MORE"]),
        ({"SIZE": "70B", "VP": ""}, ["run", "80"]),
        ({"SIZE": "70B", "VP": "5"}, ["run", "80", "--vp", "5"]),
        ({"SIZE": "9B"}, ["run", "1", "$MORE"]),
        ({}, ["run", "1", "--vp", "${VP}"]),  # not known: all branches, the last one counts
    ],
)
def test_the_branch_that_holds_is_read(environment: dict[str, str], commands: list[str]) -> None:
    assert words(SIZES, **environment) == commands
    script = read_script(SIZES, "run.sh", environment)
    assert script.is_certain is bool(environment)


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("[ 1 -eq 1 ]", True),
        ("[ ! a != b ]", False),
        ("[ -n $A ]", None),
        ("[[ a == a && b == c ]]", None),
        ("[[ a == a* ]]", None),
        ("which nvcc", None),
    ],
)
def test_what_does_not_follow_has_both_branches(test: str, holds: bool | None) -> None:
    got = words(f"if {test}; then run yes; else run no; fi")
    yes, no = ["run", "yes"], ["run", "no"]
    assert got == {True: yes, False: no, None: yes + no}[holds]


def test_the_environment_wins_and_words_keep_the_line_they_were_written_in() -> None:
    assert words("N=${N:-1}\nM=2\nrun $N $M", N="9") == ["run", "9", "2"]
    text = "A=(\n  --b 2\n  --c\n)\nB='--d\n  --e'\nrun ${A[@]} \\\n  $B --f\n"
    found = {word.text: word.line for word in read_script(text, "run.sh", {}).commands}
    assert found == {"run": 7, "--b": 2, "2": 2, "--c": 3, "--d": 5, "--e": 6, "--f": 8}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a\nrun 'open", 2, "' is never closed"),
        ("A=(1\n2", 1, "( is never closed"),
        ("run ${A", 1, "{ is never closed"),
        ("A='x x'\n" + 'A="$A $A"\n' * 40 + "run $A", None, "expand to too much text"),
        ("A='x x'\n" + 'A="$A$A"\n' * 40 + "run $A", None, "expand to too much text"),
    ],
)
def test_what_has_no_end_is_refused(text: str, line: int | None, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_script(text, "run.sh", {})
    [problem] = caught.value.found
    assert says in problem.message
    assert line in (None, problem.line)


@pytest.mark.parametrize("expression", ["1/0", "9**9**9", "a.b", "1 if 2 else 3", "2<<99", ""])
def test_arithmetic_that_is_not_plain_stays_as_it_is(expression: str) -> None:
    assert words(f"run $(({expression}))") == ["run", f"$(({expression}))"][:2]
