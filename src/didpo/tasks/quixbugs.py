"""QuixBugs: one small program with a bug in each, and its cases as lines `[arguments, expected]`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.tasks.reading import Row, Unusable, read_text
from didpo.types import AssertTest, CallTest, Task, Test

PATH = "solution.py"


def read_quixbugs(path: Path) -> Row:
    """The file of one program as a record: {name, cases, buggy, correct}. The programs are taken from the folders
    python_programs and correct_python_programs where these lie beside the folder of the cases."""
    cases = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                cases.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise UserError(f"{path}:{number}: not JSON ({error.msg}); download the file again") from None
    name = path.name.removesuffix(".gz").removesuffix(".json")
    programs = {
        key: _program(path.parent, folder, name)
        for key, folder in (("buggy", "python_programs"), ("correct", "correct_python_programs"))
    }
    return {"name": name, "cases": cases, **programs}


def _program(folder: Path, kind: str, name: str) -> str:
    places = (folder / kind / f"{name}.py", folder.parent / kind / f"{name}.py")
    return next((read_text(p).replace("\r\n", "\n") for p in places if p.is_file()), "")


def quixbugs(row: Row) -> Task:
    """A task to mend the program; without the programs at hand it is to be written from its first two cases."""
    name = row["name"]
    if not all(isinstance(c, list) and len(c) == 2 for c in row["cases"]):
        raise Unusable("a case is not [arguments, expected]")
    cases = [(arguments(a), expected) for a, expected in row["cases"]]
    tests = tuple(case_test(i, name, args, expected) for i, (args, expected) in enumerate(cases))
    if not tests:
        raise Unusable("no tests")
    shown = "".join(f"{name}({', '.join(map(repr, args))}) == {expected!r}\n" for args, expected in cases[:2])
    told = f"The function `{name}` in {PATH} has a bug; mend it." if row["buggy"] else f"Write `{name}` in {PATH}."
    return Task(
        task_id=f"quixbugs/{name}",
        prompt=f"{told} It must give:\n{shown}",
        files={PATH: row["buggy"] or f"def {name}(*args):\n    raise NotImplementedError\n"},
        visible_tests=tests[:2],
        hidden_tests=tests[2:],
        reference={PATH: row["correct"]} if row["correct"] else None,
        meta={"benchmark": "quixbugs", "entry_point": name, "question": f"QuixBugs {name}"},
    )


def case_test(number: int, function: str, args: tuple[Any, ...], expected: Any) -> Test:
    """A call with its value. Where a list is expected, a generator of its items is as good."""
    if not isinstance(expected, list):
        return CallTest(name=f"case/{number}", path=PATH, function=function, args=args, expected=expected)
    code = (
        f"got = {function}(*{args!r})\n"
        "plain = lambda v: [plain(x) for x in v] if isinstance(v, (list, tuple)) else v\n"
        f"assert plain(got if isinstance(got, (list, tuple)) else list(got)) == {expected!r}, repr(got)\n"
    )
    return AssertTest(name=f"case/{number}", path=PATH, code=code)


def arguments(value: Any) -> tuple[Any, ...]:
    """The arguments of a case: a list of them, or one bare value."""
    return tuple(value) if isinstance(value, list) else (value,)
