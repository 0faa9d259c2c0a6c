"""Validation of problems: right programs pass, wrong ones fail, and what differs is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from didpo.errors import UserError
from didpo.mutants import mutants
from didpo.sandbox import Sandbox, open_sandbox
from didpo.tasks.function_tests import mbpp
from didpo.tasks.reading import LoadReport
from didpo.types import CallTest, StdioTest, Task
from didpo.validate import Graded, judge, read_graded, validate, validate_tasks


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox(require="process", workers=2) as opened:
        yield opened


def double(*pairs: tuple[int, int], code: str = "def double(x):\n    return 2 * x\n", name: str = "t") -> Task:
    return Task(
        task_id=name,
        prompt="",
        files={"solution.py": "def double(x):\n    raise NotImplementedError\n"},
        hidden_tests=tuple(
            CallTest(name=f"case/{i}", path="solution.py", function="double", args=(a,), expected=b)
            for i, (a, b) in enumerate(pairs)
        ),
        reference={"solution.py": code},
        meta={"entry_point": "double"},
    )


def test_mutants_of_a_function() -> None:
    made = dict(mutants(double((1, 2), (3, 6))))
    assert list(made) == ["stub", "none", "off_by_one", "constant"]
    for name, expected in (("none", None), ("off_by_one", 7), ("constant", 2)):
        space: dict[str, object] = {}
        exec(made[name], space)
        assert space["double"](3) == expected  # type: ignore[operator]
    assert "constant" not in dict(mutants(double((1, 2), (1, 2))))  # nothing else is expected: it would be right


def test_mutants_change_the_last_return_of_the_function_itself() -> None:
    code = "def double(x):\n    def f(v):\n        return v\n    if x:\n        return 2 * f(x)\n    return [f(x), x]\n"
    space: dict[str, object] = {}
    exec(dict(mutants(double((1, 2), (0, 0), code=code)))["off_by_one"], space)
    assert space["double"](1) == 2  # type: ignore[operator]
    assert space["double"](0) == [0, 1]  # type: ignore[operator]


def test_mutants_of_a_program() -> None:
    tests = tuple(
        StdioTest(name=f"case/{i}", path="solution.py", stdin=f"{i}\n", expected=f"{2 * i}\n") for i in (1, 2)
    )
    task = Task(
        task_id="p",
        prompt="",
        files={"solution.py": "raise NotImplementedError\n"},
        hidden_tests=tests,
        reference={"solution.py": "print(2 * int(input()))\n"},
    )
    assert [name for name, _ in mutants(task)] == ["stub", "silent", "constant", "extra"]


def test_a_report_names_what_rejects_right_code_and_accepts_wrong_code(sandbox: Sandbox) -> None:
    good = double((1, 2), (3, 6), name="good")
    wrong_test = double((1, 2), (3, 7), name="wrong_test")
    weak = double((2, 4), (3, 6), code="def double(x):\n    if x:\n        return 2 * x\n    return 0\n", name="weak")
    unsolved = Task(task_id="unsolved", prompt="", files=good.files, hidden_tests=good.hidden_tests)
    loaded = LoadReport(benchmark="mine", rows=5, skipped={"no tests": 1})
    report = validate_tasks([good, wrong_test, weak, unsolved], sandbox, loaded=loaded)
    assert (report.passed, report.total, report.without_reference) == (2, 3, 1)
    (rejected,) = report.rejected
    assert (rejected.task_id, rejected.tests) == ("wrong_test", ("case/1",))
    assert rejected.reason.startswith("wrong_answer: ")
    assert report.reasons == {"wrong_answer": 1}
    assert [(f.task_id, f.program) for f in report.accepted_mutants] == [("weak", "off_by_one")]
    assert report.mutants == 4 + 4 + 4 + 2  # the unsolved one: its stub, and an empty file
    assert report.unjudged == []
    found = json.loads(json.dumps(report.to_json()))
    assert found["unexplained"] == ["wrong_test"]
    assert found["skipped"] == {"no tests": 1}
    assert "rejected wrong_test" in str(report) and "accepted weak: off_by_one" in str(report)


def test_nothing_to_validate(sandbox: Sandbox) -> None:
    unsolved = Task(task_id="unsolved", prompt="", files={}, hidden_tests=double((1, 2)).hidden_tests)
    with pytest.raises(UserError, match="nothing to validate"):
        validate_tasks([unsolved], sandbox, loaded=LoadReport(benchmark="mine"), with_mutants=False)


def test_validate_reads_a_set(tmp_path: Path, sandbox: Sandbox) -> None:
    row = {"task_id": 1, "text": "Double.", "code": "def d(x):\n    return 2 * x\n", "test_list": ["assert d(2) == 4"]}
    broken = {"task_id": 2, "text": "No tests.", "code": "", "test_list": []}
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(broken) + "\n")
    report = validate("mbpp", tmp_path, sandbox)
    assert (report.passed, report.total, report.skipped) == (1, 1, {"no tests": 1})
    assert report.level == sandbox.level


def test_recorded_verdicts_are_compared(tmp_path: Path, sandbox: Sandbox) -> None:
    task = double((1, 2), (3, 6), name="apps/5")
    right, wrong = "def double(x):\n    return x + x\n", "def double(x):\n    return x\n"
    rows = [
        {"problem_id": 5, "code": right, "result": True, "kind": "a"},
        {"problem_id": 5, "code": wrong, "result": -1, "kind": "a"},
        {"problem_id": 5, "code": wrong, "result": True, "kind": "b"},
    ]
    (tmp_path / "graded.jsonl").write_text("\n".join(map(json.dumps, rows)))
    programs = list(read_graded(tmp_path / "graded.jsonl", "apps"))
    assert [p.right for p in programs] == [True, False, True]
    count, different = judge("apps", [task], programs, sandbox)
    assert (count, [f.program for f in different]) == (3, ["b #2 (right)"])
    with pytest.raises(UserError, match="not among the tasks"):
        judge("apps", [task], [Graded(task_id="apps/6", code="", right=True, label="x")], sandbox)


def test_a_real_stratified_sample(shared_data: Path, sandbox: Sandbox) -> None:
    report = validate("humaneval", shared_data, sandbox, n=10, seed=3)
    assert (report.passed, report.total, report.accepted_mutants) == (10, 10, [])


def test_every_mutant_differs_from_the_reference() -> None:
    task = mbpp(
        {"task_id": 1, "text": "x", "code": "def f(x):\n    return None\n", "test_list": ["assert f(1) is None"]}
    )
    assert task.reference is not None
    assert all(code != task.reference["solution.py"] for _, code in mutants(task))
