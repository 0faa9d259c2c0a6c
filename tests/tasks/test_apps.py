"""APPS and the rows of Eurus-2 and CodeRL+: stdin and call-based problems, wrapped outputs, merged pools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from didpo.sandbox import Limits, Sandbox
from didpo.tasks.apps import apps, eurus
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.reading import Unusable
from didpo.types import StdioTest, Task
from didpo.validate import Graded, judge, passes, read_graded


def row(cases: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"problem_id": 1, "question": "A question.", "input_output": json.dumps(cases), **more}


def accepted(sandbox: Sandbox, task: Task, code: str) -> bool:
    return passes(sandbox.grade({**task.files, "solution.py": code}, task.tests))


def test_plain_def_rows_are_called(sandbox: Sandbox) -> None:
    cases = {"fn_name": "is_odd", "inputs": [[1], [2]], "outputs": [[True], [False]]}
    task = apps(row(cases, starter_code="def is_odd(n):\n\t"))
    assert task.files["solution.py"] == "def is_odd(n):\n    raise NotImplementedError\n"
    assert accepted(sandbox, task, "def is_odd(n):\n    return n % 2 == 1\n")
    assert accepted(sandbox, task, "class Solution:\n    def is_odd(self, n):\n        return n % 2 == 1\n")
    assert accepted(sandbox, task, "def is_odd(n):\n    return [n % 2 == 1]\n")  # the output may be meant as a list
    assert not accepted(sandbox, task, "def is_odd(n):\n    return True\n")
    assert not accepted(sandbox, task, task.files["solution.py"])


def test_class_rows_know_their_imports(sandbox: Sandbox) -> None:
    cases = {"fn_name": "last", "inputs": [[[1, 2, 3]]], "outputs": [3]}
    task = apps(row(cases, starter_code="class Solution:\n    def last(self, arr: List[int]) -> int:\n        "))
    assert accepted(
        sandbox, task, "class Solution:\n    def last(self, arr: List[int]) -> int:\n        return arr[-1]\n"
    )


def test_a_tuple_is_the_list_of_its_items(sandbox: Sandbox) -> None:
    task = apps(row({"fn_name": "pair", "inputs": [[4]], "outputs": [[[4, 5]]]}))
    assert accepted(sandbox, task, "def pair(x):\n    return (x, x + 1)\n")
    assert not accepted(sandbox, task, "def pair(x):\n    return (x,)\n")


def test_inputs_may_be_lists_of_lines(sandbox: Sandbox) -> None:
    task = apps(row({"inputs": [["2", "1 2"]], "outputs": [["3", "4"]]}))
    (test,) = task.tests
    assert isinstance(test, StdioTest)
    assert (test.stdin, test.expected) == ("2\n1 2", "3\n4")
    assert accepted(sandbox, task, "input()\nprint(sum(map(int, input().split())))\nprint(4)\n")


@pytest.mark.parametrize("cases", ["", "{}", '{"inputs": [], "outputs": []}', '{"inputs": ["1"]}', "[]"])
def test_rows_without_tests_are_unusable(cases: str) -> None:
    with pytest.raises(Unusable):
        apps({"problem_id": 1, "question": "A question.", "input_output": cases})


def test_the_reference_is_the_first_solution_in_python_3() -> None:
    cases = {"inputs": ["1"], "outputs": ["1"]}
    task = apps(row(cases, solutions=json.dumps(["print raw_input()", "print(input())"])))
    assert task.reference is not None and task.reference["solution.py"] == "print(input())"
    assert apps(row(cases, solutions="")).reference is None


EURUS = {
    "data_source": "codecontests",
    "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "Double the number."}],
    "ability": "code",
    "reward_model": {"style": "rule", "ground_truth": json.dumps({"inputs": ["2\n"], "outputs": ["4\n"]})},
    "extra_info": {"split": "train", "index": 0},
}


def test_eurus_rows(sandbox: Sandbox) -> None:
    task = eurus(EURUS)
    assert task.task_id.startswith("codecontests/") and task.meta["split"] == "train"
    assert accepted(sandbox, task, "print(2 * int(input()))\n")
    other = eurus({**EURUS, "prompt": [{"role": "user", "content": "Another question."}]})
    assert other.task_id != task.task_id  # the same index, another problem
    called = {"inputs": [[2]], "outputs": [4], "fn_name": "double"}
    task = eurus({**EURUS, "reward_model": {"ground_truth": json.dumps(called)}})
    assert accepted(sandbox, task, "def double(x):\n    return 2 * x\n")
    with pytest.raises(Unusable, match="not a code problem"):
        eurus({**EURUS, "ability": "math"})


def test_the_merged_pool(tmp_path: Path) -> None:
    cases = json.dumps({"inputs": ["2\n"], "outputs": ["4\n"]})
    apps_rows = [
        {"problem_id": i, "question": q, "input_output": cases} for i, q in enumerate(["Double  the number", "B"])
    ]
    extra = [EURUS, {**EURUS, "prompt": [{"role": "user", "content": "New."}]}]
    for place, rows in (
        ("apps/train.jsonl", apps_rows),
        ("apps/test.jsonl", apps_rows[1:]),
        ("coderl_plus/a.jsonl", extra),
    ):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("\n".join(map(json.dumps, rows)))
    tasks, report = load_benchmark("apps_train_coderl", tmp_path)
    assert [t.meta["question"] for t in tasks] == ["Double  the number", "B", "New."]
    assert report.skipped == {"same question": 1, "not chosen by the filters": 1}
    assert report.rows == 5


# ---------------------------------------------------------------- real rows


def test_all_real_rows_load(shared_data: Path) -> None:
    tasks, report = load_benchmark("apps", shared_data, several=True)
    assert (len(tasks), report.rows, report.skipped) == (15, 15, {})
    assert sum(t.reference is not None for t in tasks) == 5
    train, _ = load_benchmark("apps", shared_data, split="train")
    assert len(train) == 5


def test_real_references_pass_and_stubs_fail(shared_data: Path, sandbox: Sandbox) -> None:
    tasks, _ = load_benchmark("apps", shared_data, several=True)
    for task in tasks:
        if task.reference is not None:
            assert passes(sandbox.grade(task.reference, task.tests)), task.task_id
        assert not any(r.passed for r in sandbox.grade(task.files, task.tests).values()), task.task_id


def test_recorded_verdicts(shared_data: Path, sandbox: Sandbox) -> None:
    """All that finish quickly; the one that differs defines its class inside a function that nobody calls."""
    tasks, _ = load_benchmark("apps", shared_data, several=True)
    programs = list(read_graded(shared_data / "apps" / "apps_generated_solutions.jsonl", "apps/train"))
    assert len(programs) == 88
    quick: list[Graded] = [p for p in programs if p.task_id != "apps/train/111"][::2] + programs[66:67]
    _, different = judge("apps", tasks, quick, sandbox, limits=Limits(cpu_s=1.0))
    assert {f.program for f in different} <= {"baseline_solutions #66 (right)"}
    assert len(different) >= 1
