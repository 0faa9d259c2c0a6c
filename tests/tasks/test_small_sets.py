"""GSM8K, QuixBugs, SWE-bench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from didpo.sandbox import Sandbox
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.gsm8k import final_answer
from didpo.tasks.quixbugs import arguments
from didpo.tasks.reading import Unusable
from didpo.tasks.swebench import image_name, swebench
from didpo.validate import passes


@pytest.mark.parametrize(
    ("text", "answer"), [("Sum.\n#### 18", "18"), ("x #### 1,234", "1234"), ("#### -5", "-5"), ("#### 0.5\n", "0.5")]
)
def test_final_answer(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_no_final_answer() -> None:
    with pytest.raises(Unusable):
        final_answer("It is 18.")


def test_gsm8k_rows(shared_data: Path, sandbox: Sandbox) -> None:
    tasks, report = load_benchmark("gsm8k", shared_data)
    assert (len(tasks), report.skipped) == (400, {})
    assert len(load_benchmark("gsm8k", shared_data, split="test")[0]) == 200
    first = next(t for t in tasks if "Janet" in t.prompt)
    assert first.meta["answer"] == "18"
    for code, right in (
        ("print(18.0)\n", True),
        ("print('18')", True),
        ("print(19)\n", False),
        ("print(18, 18)", False),
    ):
        assert passes(sandbox.grade({"solution.py": code}, first.tests)) is right


def test_quixbugs_bare_values() -> None:
    assert (arguments([17, 0]), arguments("abc"), arguments(127)) == ((17, 0), ("abc",), (127,))


def test_quixbugs_rows(shared_data: Path, sandbox: Sandbox) -> None:
    tasks, report = load_benchmark("quixbugs", shared_data)
    assert (len(tasks), report.skipped) == (31, {})
    by_id = {t.task_id: t for t in tasks}
    gcd = by_id["quixbugs/gcd"]
    right = "def gcd(a, b):\n    return a if b == 0 else gcd(b, a % b)\n"
    assert passes(sandbox.grade({"solution.py": right}, gcd.tests))
    assert not any(r.passed for r in sandbox.grade(gcd.files, gcd.tests).values())
    flat = "def flatten(arr):\n    for x in arr:\n        if isinstance(x, list):\n            yield from flatten(x)\n"
    flat += "        else:\n            yield x\n"
    results = sandbox.grade({"solution.py": flat}, by_id["quixbugs/flatten"].tests)
    assert passes(results), results  # a generator counts as the list of its items


def test_quixbugs_with_the_programs(tmp_path: Path, sandbox: Sandbox) -> None:
    root = tmp_path / "quixbugs"
    for folder, text in (
        ("json_testcases/inc.json", "[[1], 2]\n[5, 6]\n\n[[2], 3]\n"),
        ("python_programs/inc.py", "def inc(x):\r\n    return x\r\n"),
        ("correct_python_programs/inc.py", "def inc(x):\n    return x + 1\n"),
    ):
        (root / folder).parent.mkdir(parents=True, exist_ok=True)
        (root / folder).write_bytes(text.encode())
    (task,), _ = load_benchmark("quixbugs", tmp_path)
    assert task.files["solution.py"] == "def inc(x):\n    return x\n"
    assert "has a bug" in task.prompt and task.reference is not None
    assert passes(sandbox.grade(task.reference, task.tests))
    assert not passes(sandbox.grade(task.files, task.tests))


ROW = {
    "instance_id": "django__django-16255",
    "repo": "django/django",
    "base_commit": "abc",
    "problem_statement": "It fails.",
    "patch": "diff",
    "test_patch": "diff2",
    "FAIL_TO_PASS": json.dumps(["t.py::a"]),
    "PASS_TO_PASS": ["t.py::b", "t.py::a"],
}


def test_swebench_lists_as_text_or_list() -> None:
    task = swebench(ROW)
    assert [t.name for t in task.tests] == ["t.py::a", "t.py::b"]
    assert task.meta["fail_to_pass"] == ("t.py::a",)
    assert task.meta["image"] == "swebench/sweb.eval.x86_64.django_1776_django-16255:latest"
    assert image_name("Qiskit__qiskit-1") == "swebench/sweb.eval.x86_64.qiskit_1776_qiskit-1:latest"
    assert swebench({**ROW, "image_name": "mine:1"}).meta["image"] == "mine:1"
    with pytest.raises(Unusable, match="no test that must change"):
        swebench({**ROW, "FAIL_TO_PASS": "[]"})


def test_r2egym_rows() -> None:
    outcomes = json.dumps({"test_a": "PASSED", "test_b": "FAILED"})
    row = {"repo_name": "orange3", "commit_hash": "0123456789abcdef", "problem_statement": "x", "docker_image": "r2e:1"}
    task = swebench({**row, "expected_output_json": outcomes})
    assert [t.name for t in task.tests] == ["test_a"]
    assert task.meta["image"] == "r2e:1"


def test_real_swebench_rows(shared_data: Path) -> None:
    tasks, report = load_benchmark("swebench", shared_data)
    assert (len(tasks), report.skipped) == (14, {})
    assert all(t.meta["fail_to_pass"] and t.meta["test_patch"] for t in tasks)
