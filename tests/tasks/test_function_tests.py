"""HumanEval, MBPP, LeetCode: hand-made rows with known outcomes, and the real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from didpo.sandbox import Sandbox
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.function_tests import humaneval, leetcode, mbpp, split_check
from didpo.tasks.reading import Unusable
from didpo.types import Task
from didpo.validate import passes

ADD = {
    "task_id": "HumanEval/900",
    "prompt": 'def double(x: int) -> int:\n    return 2 * x\n\n\ndef add(a: int, b: int) -> int:\n    """Sum."""\n',
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert True, 'fine'\n    k = 2\n"
    "    assert candidate(1, k) == 3\n    for i in range(3):\n        assert candidate(i, i) == double(i)\n",
}


def verdicts(sandbox: Sandbox, task: Task, code: str) -> list[bool]:
    return [r.passed for r in sandbox.grade({**task.files, "solution.py": code}, task.tests).values()]


def test_each_assert_is_a_test_and_constants_are_none(sandbox: Sandbox) -> None:
    task = humaneval(ADD)
    assert len(task.tests) == 2
    assert task.reference is not None
    assert verdicts(sandbox, task, task.reference["solution.py"]) == [True, True]
    assert verdicts(sandbox, task, task.files["solution.py"]) == [False, False]
    assert verdicts(sandbox, task, "def add(a, b):\n    return 3\n") == [True, False]


def test_helpers_of_the_prompt_belong_to_the_tests(sandbox: Sandbox) -> None:
    cheat = "def double(x):\n    return 0\n\n\ndef add(a, b):\n    return 3 if a != b else 0\n"
    assert verdicts(sandbox, humaneval(ADD), cheat) == [True, False]


def test_rows_with_inputs_only(sandbox: Sandbox) -> None:
    row = {**ADD, "base_input": [[1, 2]], "plus_input": [[5, -5]], "atol": 0}
    del row["test"]
    task = humaneval(row)
    assert task.reference is not None
    assert verdicts(sandbox, task, task.reference["solution.py"]) == [True]
    assert verdicts(sandbox, task, "def add(a, b):\n    return abs(a) + abs(b)\n") == [False]


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("def check(candidate):\n    assert True\n", "no asserts"),
        ("def check(candidate):\n    pass\n", "no asserts"),
        ("x = 1\n", r"no check\(candidate\)"),
    ],
)
def test_suites_that_test_nothing(test: str, said: str) -> None:
    with pytest.raises(Unusable, match=said):
        split_check(test)


def test_split_check_keeps_asserts_that_share_a_line(sandbox: Sandbox) -> None:
    parts = split_check("def check(candidate):\n    assert candidate(1) == 1; assert candidate(2) == 3\n")
    assert [p.count("assert") for p in parts] == [1, 1]
    assert len(split_check("def check(candidate): assert candidate(1) == 1\n")) == 1


RAW = {
    "task_id": 5,
    "text": "Write a function to add.",
    "code": "class P:\r\n    pass\r\n\r\ndef plus(a, b):\r\n    return a + b\r\n",
    "test_setup_code": "",
    "test_list": ["assert plus(1, 2) == 3", "assert plus(0, 0) == 0"],
    "challenge_test_list": ["assert plus(-1, 1) == 0"],
}


def test_mbpp_raw_and_sanitized_rows(sandbox: Sandbox) -> None:
    task = mbpp(RAW)
    assert "`plus`" in task.prompt and "assert plus(1, 2) == 3" in task.prompt
    assert "assert plus(0, 0)" not in task.prompt
    assert [len(task.visible_tests), len(task.hidden_tests)] == [1, 2]
    assert task.meta["split"] == "prompt"
    assert task.reference is not None
    assert verdicts(sandbox, task, task.reference["solution.py"]) == [True] * 3
    assert verdicts(sandbox, task, task.files["solution.py"]) == [False] * 3
    clean = {k: v for k, v in RAW.items() if k not in ("text", "test_setup_code", "challenge_test_list")}
    tests = ["assert math.isclose(plus(1, 2), 3)"]
    task = mbpp({**clean, "prompt": "Add.", "test_imports": ["import math"], "test_list": tests})
    assert task.prompt.startswith("Add.")
    assert verdicts(sandbox, task, "def plus(a, b):\n    return a + b\n") == [True]


def test_mbpp_plus_adds_its_test_program(sandbox: Sandbox) -> None:
    task = mbpp({**RAW, "task_id": "Mbpp/5", "test": "for a, b in [(2, 2), (5, 5)]:\n    assert plus(a, b) == a + b\n"})
    assert task.task_id == "mbpp/5"
    wrong = "def plus(a, b):\n    return {(1, 2): 3}.get((a, b), 0)\n"
    assert verdicts(sandbox, task, wrong) == [True, True, True, False]


def test_a_program_may_define_a_builtin_name() -> None:
    task = mbpp({**RAW, "code": "def sum(a, b):\n    return a + b\n", "test_list": ["assert sum(1, 2) == 3"]})
    assert task.meta["entry_point"] == "sum"


PRELUDE = (
    "from typing import *\n\n\nclass ListNode:\n    def __init__(self, val=0, next=None):\n"
    "        self.val, self.next = val, next\n\n\ndef list_node(values):\n    head = None\n"
    "    for v in reversed(values):\n        head = ListNode(v, head)\n    return head\n\n\n"
    "def tree_node(values):\n    return None\n\n\ndef is_same_list(p, q):\n    while p is not None and q is not None:\n"
    "        if p.val != q.val:\n            return False\n        p, q = p.next, q.next\n"
    "    return p is None and q is None\n"
)
REVERSE = {
    "task_id": "reverse-list",
    "prompt": PRELUDE,
    "starter_code": "class Solution:\n    def rev(self, head: Optional[ListNode]) -> Optional[ListNode]:\n        ",
    "problem_description": "Reverse a list.",
    "difficulty": "Easy",
    "estimated_date": "2024-01-02",
    "entry_point": "Solution().rev",
    "completion": "class Solution:\n    def rev(self, head):\n        last = None\n        while head:\n"
    "            head.next, last, head = last, head, head.next\n        return last\n",
    "test": "def check(candidate):\n"
    "    assert is_same_list(candidate(head = list_node([1, 2, 3])), list_node([3, 2, 1]))\n"
    "    assert is_same_list(candidate(head = list_node([])), list_node([]))\n",
}


def test_leetcode_linked_lists_are_compared_by_the_tests(sandbox: Sandbox) -> None:
    task = leetcode(REVERSE)
    assert task.difficulty == "easy" and task.meta["contest_date"] == "2024-01-02"
    assert verdicts(sandbox, task, REVERSE["completion"]) == [True, True]
    assert not any(verdicts(sandbox, task, task.files["solution.py"]))
    plain = "def rev(head):\n    return head\n"  # a plain def is called as well; and the empty list is its own reverse
    assert verdicts(sandbox, task, plain) == [False, True]
    cheat = plain + "\ndef is_same_list(p, q):\n    return True\n"
    assert verdicts(sandbox, task, cheat) == [False, True]


def test_leetcode_older_rows_have_the_starter_in_the_query() -> None:
    older = {k: v for k, v in REVERSE.items() if k not in ("starter_code", "problem_description", "difficulty")}
    query = f"Reverse a list.\n```python\n{REVERSE['starter_code'].rstrip()}\n```"
    task = leetcode({**older, "query": query, "meta": {"difficulty": "Hard"}})
    assert task.difficulty == "hard"
    assert task.files["solution.py"].endswith("-> Optional[ListNode]:\n        raise NotImplementedError\n")


# ---------------------------------------------------------------- real rows


@pytest.mark.parametrize(
    ("name", "count"),
    [("humaneval", 164), ("mbpp", 974), ("mbpp_sanitized", 427), ("leetcode", 228), ("leetcode_older", 20)],
)
def test_every_real_record_becomes_a_task(shared_data: Path, name: str, count: int) -> None:
    tasks, report = load_benchmark(name, shared_data)
    assert (len(tasks), report.rows, report.skipped) == (count, count, {})
    for task in tasks:
        assert task.reference is not None and task.tests
        assert len({t.name for t in task.tests}) == len(task.tests)
        assert str(task.meta["entry_point"]) in task.prompt


@pytest.mark.parametrize("name", ["humaneval", "mbpp", "mbpp_sanitized", "leetcode", "leetcode_older"])
def test_real_references_pass_and_stubs_fail(shared_data: Path, sandbox: Sandbox, name: str) -> None:
    tasks, _ = load_benchmark(name, shared_data, n=8, seed=1, max_tests=4)
    for task in tasks:
        assert task.reference is not None
        assert passes(sandbox.grade(task.reference, task.tests)), task.task_id
        assert not any(r.passed for r in sandbox.grade(task.files, task.tests).values()), task.task_id


def test_values_of_the_program_own_types(shared_data: Path, sandbox: Sandbox) -> None:
    """MBPP 367, 601 and 927 pass nodes and pairs of the program's own classes to it."""
    tasks, _ = load_benchmark("mbpp", shared_data, ids={"mbpp/367", "mbpp/601", "mbpp/927"})
    for task in tasks:
        assert task.reference is not None
        assert passes(sandbox.grade(task.reference, task.tests)), task.task_id


def test_humaneval_from_a_file(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps(ADD) + "\n")
    tasks, _ = load_benchmark("humaneval", tmp_path / "mine.jsonl")
    assert [t.task_id for t in tasks] == ["HumanEval/900"]
    assert replace(tasks[0], meta={}) == replace(humaneval(ADD), meta={})
