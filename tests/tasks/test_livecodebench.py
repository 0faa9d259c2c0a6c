"""LiveCodeBench: private tests in every encoding, and pickles that must not run."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path

import pytest

from didpo.sandbox import Sandbox
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.livecodebench import decode_private, livecodebench
from didpo.tasks.reading import Unusable
from didpo.validate import judge, passes, read_graded

CASES = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]


def encoded(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@pytest.mark.parametrize("text", [json.dumps(CASES), encoded(json.dumps(CASES)), encoded(CASES)])
def test_private_tests_in_each_encoding(text: str) -> None:
    assert decode_private(text) == CASES


class Evil:
    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


def test_no_pickle_runs_code(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    with pytest.raises(Unusable, match="not plain text"):
        decode_private(encoded(Evil(str(target))))
    assert not target.exists()


@pytest.mark.parametrize("value", [ValueError, print, Path("/")])
def test_every_global_is_refused(value: object) -> None:
    with pytest.raises(Unusable, match="not plain text"):
        decode_private(encoded(value))


@pytest.mark.parametrize("text", ["!!!", "AAAA", base64.b64encode(zlib.compress(b"no pickle")).decode(), encoded(7)])
def test_broken_private_tests(text: str) -> None:
    with pytest.raises(Unusable):
        decode_private(text)


ROW = {
    "question_id": "x1",
    "question_content": "Add two lists.",
    "platform": "leetcode",
    "contest_date": "2024-05-01T00:00:00",
    "starter_code": "class Solution:\n    def add(self, a: List[int], b: List[int]) -> List[int]:\n        ",
    "difficulty": "easy",
    "public_test_cases": json.dumps([{"input": "[1]\n[2]", "output": "[3]", "testtype": "functional"}]),
    "private_test_cases": encoded('[{"input": "[0, 1]\\n[5, 5]", "output": "[5, 6]", "testtype": "functional"}]'),
    "metadata": json.dumps({"func_name": "add"}),
}


def test_functional_rows(sandbox: Sandbox) -> None:
    task = livecodebench(ROW)
    assert [t.args for t in task.tests] == [([1], [2]), ([0, 1], [5, 5])]  # type: ignore[union-attr]
    right = "class Solution:\n    def add(self, a: List[int], b):\n        return tuple(x + y for x, y in zip(a, b))\n"
    assert passes(sandbox.grade({**task.files, "solution.py": right}, task.tests))  # List is there; a tuple is a list
    assert not any(r.passed for r in sandbox.grade(task.files, task.tests).values())


def test_functional_rows_need_a_name() -> None:
    with pytest.raises(Unusable, match="func_name"):
        livecodebench({**ROW, "metadata": "{}"})


def test_the_official_row_and_its_private_tests(shared_data: Path) -> None:
    tasks, _ = load_benchmark("livecodebench", shared_data / "livecodebench" / "lcb_official_row.jsonl")
    (task,) = tasks
    assert (len(task.visible_tests), len(task.hidden_tests)) == (1, 4)
    assert task.hidden_tests[0].stdin.split()[0] == "1"  # type: ignore[union-attr]


def test_all_real_rows_load_and_fit_a_window_of_dates(shared_data: Path) -> None:
    tasks, report = load_benchmark("livecodebench", shared_data)
    assert (len(tasks), report.rows) == (58, 58)
    late, _ = load_benchmark("livecodebench", shared_data, since="2023-10-01", until="2024-04-30")
    dates = [t.meta["contest_date"][:10] for t in late]
    assert dates and min(dates) >= "2023-10-01" and max(dates) <= "2024-04-30"
    assert len(late) == sum("2023-10-01" <= t.meta["contest_date"][:10] <= "2024-04-30" for t in tasks)


def test_recorded_verdicts(shared_data: Path, sandbox: Sandbox) -> None:
    """The derived cases are the examples of the statements: two wrong programs get those right."""
    tasks, _ = load_benchmark("livecodebench", shared_data)
    programs = list(read_graded(shared_data / "livecodebench" / "lcb_submissions_sample.jsonl", "lcb"))
    chosen = [p for p in programs if not p.right] + [p for p in programs if p.right][::4]
    count, different = judge("livecodebench", tasks, chosen, sandbox)
    assert count == 9 + 27
    assert {f.task_id for f in different} == {"lcb/2784", "lcb/abc301_d"}
    assert all("(wrong)" in f.program for f in different)
