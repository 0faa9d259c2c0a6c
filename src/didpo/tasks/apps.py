"""APPS, and the rows of Eurus-2 and CodeRL+ that hold problems of the same kind.

Both give the cases as {"inputs": [...], "outputs": [...]}, and with "fn_name" where a function is called instead of
standard input being read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from didpo.tasks.function_tests import HARNESS, PATH, harness, leetcode_stub
from didpo.tasks.reading import (
    PROGRAM_STUB,
    Row,
    Unusable,
    compiles,
    json_field,
    need,
    shown_first,
    stdio_tests,
)
from didpo.types import AssertTest, CallTest, Files, Task, Test

PRELUDE = "\n".join(
    [
        "import sys, math, re, collections, itertools, functools, heapq, bisect, string, random, copy, operator",
        "from typing import *",
        "from collections import *",
        "from itertools import *",
        "from functools import *",
        "from heapq import *",
        "from bisect import *",
        "from math import *",
        "sys.setrecursionlimit(50000)",
    ]
)


def apps(row: Row) -> Task:
    """A row of APPS: `solutions` and `input_output` are JSON texts and may be empty."""
    question = need(row, "question")[0]
    number = row.get("problem_id", row.get("id"))
    if number is None:
        raise Unusable("no field 'problem_id'")
    return case_task(
        task_id=f"apps/{number}",
        question=question,
        cases=json_field(row, "input_output", {}),
        starter=row.get("starter_code") or "",
        solutions=json_field(row, "solutions", []),
        difficulty=str(row.get("difficulty") or ""),
        meta={"benchmark": "apps", "url": row.get("url") or ""},
    )


def eurus(row: Row) -> Task:
    """A row of Eurus-2-RL-Data or CodeRL+: chat `prompt`, cases in `reward_model.ground_truth`. `extra_info.index` is
    not unique over the sources, so the id is a hash of the question."""
    prompt, reward_model = need(row, "prompt", "reward_model")
    if row.get("ability") not in (None, "code"):
        raise Unusable("not a code problem")
    asked = [str(m.get("content") or "") for m in prompt if m.get("role") == "user"]
    if not asked or not asked[-1].strip():
        raise Unusable("no question in the prompt")
    question = asked[-1]
    source = str(row.get("data_source") or "eurus")
    digest = hashlib.sha256(question.encode()).hexdigest()[:16]
    return case_task(
        task_id=f"{source}/{digest}",
        question=question,
        cases=json_field(reward_model, "ground_truth", {}),
        starter="",
        solutions=[],
        difficulty=str((row.get("extra_info") or {}).get("difficulty") or ""),
        meta={
            "benchmark": "eurus",
            "source": source,
            "split": str((row.get("extra_info") or {}).get("split") or ""),
        },
    )


def case_task(
    *,
    task_id: str,
    question: str,
    cases: Any,
    starter: str,
    solutions: Sequence[str],
    difficulty: str,
    meta: Mapping[str, Any],
) -> Task:
    """A task from {"inputs", "outputs"[, "fn_name"]}. Raises Unusable where no case can tell right from wrong."""
    if not isinstance(cases, Mapping) or not cases.get("inputs") or not cases.get("outputs"):
        raise Unusable("no tests")
    inputs, outputs = cases["inputs"], cases["outputs"]
    if len(inputs) != len(outputs):
        raise Unusable("inputs and outputs differ in number")
    function = cases.get("fn_name")
    files: Files
    visible: tuple[Test, ...]
    hidden: tuple[Test, ...]
    if function:
        files = {PATH: _call_stub(starter, function), HARNESS: harness(PRELUDE, function)}
        visible, hidden = (), tuple(call_test(i, function, *c) for i, c in enumerate(zip(inputs, outputs, strict=True)))
        told = f"Write `{function}` in {PATH}." + (f"\n\n{starter.rstrip()}\n" if starter.strip() else "")
    else:
        files = {PATH: PROGRAM_STUB}
        visible, hidden = shown_first(question, stdio_tests(zip(inputs, outputs, strict=True)))
        told = f"Write the program {PATH}: it reads standard input and prints the answer."
    if not (*visible, *hidden):
        raise Unusable("no test has an expected output")
    right = next((s for s in solutions if s.strip() and compiles(s)), None)
    return Task(
        task_id=task_id,
        prompt=f"{question.strip()}\n\n{told}\n",
        files=files,
        visible_tests=visible,
        hidden_tests=hidden,
        difficulty=difficulty,
        reference={**files, PATH: right} if right else None,
        meta={**meta, "question": question, "entry_point": function or ""},
    )


def _call_stub(starter: str, function: str) -> str:
    stub = leetcode_stub(starter) if starter.strip() else ""
    return stub if compiles(stub) and stub.strip() else f"def {function}(*args):\n    raise NotImplementedError\n"


def call_test(number: int, function: str, arguments: Any, expected: Any) -> Test:
    """A call with one expected value. Published outputs are wrapped in a list in some rows and not in others, so where
    the output is a list its first item is accepted as well as the whole; a tuple equals the list of its items."""
    args = tuple(arguments) if isinstance(arguments, (list, tuple)) else (arguments,)
    if not (isinstance(expected, list) and expected):
        return CallTest(name=f"case/{number}", path=HARNESS, function=function, args=args, expected=expected)
    code = (
        f"expected = {expected!r}\n"
        f"got = {function}(*{args!r})\n"
        "plain = lambda v: [plain(x) for x in v] if isinstance(v, (list, tuple)) else v\n"
        "assert plain(got) in (expected, expected[0]), f'returned {got!r}, expected {expected!r}'\n"
    )
    return AssertTest(name=f"case/{number}", path=HARNESS, code=code)
