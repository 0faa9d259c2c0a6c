"""Programs that must fail, made from right ones: what a test suite is measured by before it gives rewards."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from didpo.tasks.reading import parse
from didpo.types import AssertTest, CallTest, StdioTest, Task

PATH = "solution.py"
OFF_BY_ONE = """

def _off_by_one(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float, complex)):
        return value + 1
    if isinstance(value, str):
        return value + "?"
    if isinstance(value, (list, tuple)) and value:
        return type(value)([*value[:-1], _off_by_one(value[-1])])
    if isinstance(value, (dict, set)) and value:
        return type(value)()
    return 1
"""


def mutants(task: Task) -> Iterator[tuple[str, str]]:
    """(name, text of solution.py) of programs that are wrong for `task`, made from its reference where that helps.

    "stub": the file as the agent finds it. "none": the asked function returns None. "constant": it returns what the
    first test expects, whatever it is given. "off_by_one": the value of its last return is changed a little (which an
    unlucky set of tests never sees). For whole programs: "silent", "constant" (prints the first answer always) and
    "extra" (one number too many). No name is given twice; none has the text of the reference.
    """
    reference = (task.reference or {}).get(PATH, "")
    yield "stub", task.files.get(PATH, "")
    entry = str(task.meta.get("entry_point") or "")
    if any(isinstance(t, StdioTest) for t in task.tests):
        made = _program_mutants(task, reference)
    elif entry:
        made = _function_mutants(task, reference, entry)
    else:
        made = {"empty": "pass\n"}
    for name, code in made.items():
        if code and code != reference:
            yield name, code


def _program_mutants(task: Task, reference: str) -> dict[str, str]:
    answers = [t.expected for t in task.tests if isinstance(t, StdioTest)]
    made = {"silent": "import sys\nsys.stdin.read()\n"}
    if len({" ".join(a.split()) for a in answers}) > 1:
        made["constant"] = f"print({answers[0]!r})\n"
    if reference:
        made["extra"] = f"{reference.rstrip()}\nprint(12345)\n"
    return made


def _function_mutants(task: Task, reference: str, entry: str) -> dict[str, str]:
    if not reference:
        return {}
    made = {"none": _with_body(reference, entry, "return None"), "off_by_one": _with_last_return(reference, entry)}
    first = _first_expected(task)
    if first is not None:
        made["constant"] = _with_body(reference, entry, f"return {first}")
    return made


def _entry(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    return found[-1] if found else None  # a later definition hides an earlier one


def _with_body(source: str, name: str, body: str) -> str:
    tree = parse(source)
    function = _entry(tree, name)
    if function is None:
        return ""
    function.body = parse(f"def f():\n    {body}").body[0].body  # type: ignore[attr-defined]
    return ast.unparse(tree) + "\n"


def _with_last_return(source: str, name: str) -> str:
    """The last return of the function (not of one inside it) gives another value."""
    tree = parse(source)
    function = _entry(tree, name)
    if function is None:
        return ""
    inner = {
        id(r)
        for n in ast.walk(function)
        if n is not function and isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for r in ast.walk(n)
    }
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value and id(n) not in inner]
    if not returns:
        return ""
    last = max(returns, key=lambda n: n.lineno)
    last.value = ast.Call(func=ast.Name(id="_off_by_one", ctx=ast.Load()), args=[last.value], keywords=[])  # type: ignore[list-item]
    return ast.unparse(ast.fix_missing_locations(tree)) + OFF_BY_ONE


def _first_expected(task: Task) -> str | None:
    """What the first test expects, as source text, where other tests expect something else."""
    values = []
    for test in task.tests:
        if isinstance(test, CallTest):
            values.append(repr(test.expected))
        elif isinstance(test, AssertTest):
            values += _compared_literals(test.code)
    return values[0] if len(set(values)) > 1 else None


def _compared_literals(code: str) -> list[str]:
    """The literals right of == in the asserts of a test, as source text."""
    found = []
    for node in ast.walk(parse(code)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            right = node.test.comparators[0]
            if isinstance(node.test.ops[0], ast.Eq) and _is_literal(right):
                found.append(ast.unparse(right))
    return found


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return False
    return True
