"""Contest layouts, each with a small problem "add the two numbers" in it; and the real sample rows."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from didpo.sandbox import Sandbox
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.contests import code_contests, codeforces, icpc_eval
from didpo.tasks.reading import Unusable
from didpo.types import Task
from didpo.validate import passes

ADD = "print(sum(map(int, input().split())))\n"
CONSTANT = "print(3)\n"
CHECKER = (  # accepts two numbers that add up to the one of the input
    "import sys\nnumber = int(open(sys.argv[1]).read())\ngot = open(sys.argv[3]).read().split()\n"
    "sys.exit(0 if len(got) == 2 and sum(map(int, got)) == number else 1)\n"
)


def right(sandbox: Sandbox, task: Task, code: str) -> bool:
    return passes(sandbox.grade({**task.files, "solution.py": code}, task.tests))


def check(sandbox: Sandbox, task: Task) -> None:
    assert right(sandbox, task, ADD)
    assert not right(sandbox, task, CONSTANT)
    assert not any(r.passed for r in sandbox.grade(task.files, task.tests).values())


PAIRS = [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}]
LISTS = {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}


@pytest.mark.parametrize("tests", [PAIRS, LISTS, json.dumps(PAIRS)])
def test_codeforces_rows(sandbox: Sandbox, tests: Any) -> None:
    task = codeforces({"problem": "Add.\n\nTime Limit: 1500 ms\nMemory Limit: 256 MB\n", "tests": tests})
    assert (task.meta["time_limit_s"], task.meta["memory_limit_mb"]) == (1.5, 256.0)
    check(sandbox, task)


def test_codeforces_rows_of_the_hub(sandbox: Sandbox) -> None:
    row = {"id": "1/A", "description": "Add.", "input_format": "Two numbers.", "output_format": "Their sum."}
    task = codeforces({**row, "examples": PAIRS[:1], "official_tests": PAIRS, "time_limit": 2.0, "rating": 800})
    assert (task.task_id, task.difficulty) == ("codeforces/1/A", "800")
    assert "Two numbers." in task.prompt
    assert (len(task.visible_tests), len(task.hidden_tests)) == (1, 2)
    check(sandbox, task)


def test_code_contests_rows_of_the_hub(sandbox: Sandbox) -> None:
    def cases(*pairs: tuple[str, str]) -> dict[str, list[str]]:
        return {"input": [a for a, _ in pairs], "output": [b for _, b in pairs]}

    row = {
        "name": "1_A. Add",
        "description": "Add.",
        "public_tests": cases(("1 2\n", "3\n")),
        "private_tests": cases(("4 5\n", "9\n")),
        "generated_tests": cases(("0 0\n", "0\n")),
        "solutions": {"language": [1, 2, 3], "solution": ["print raw_input()", "int main() {}", ADD]},
        "time_limit": {"seconds": 1, "nanos": 500000000},
        "memory_limit_bytes": 256000000,
    }
    task = code_contests(row)
    assert task.reference == {"solution.py": ADD}
    assert (task.meta["time_limit_s"], task.meta["memory_limit_mb"]) == (1.5, 256.0)
    assert [t.name for t in task.tests] == ["public/0", "private/0", "generated/0"]
    check(sandbox, task)


@pytest.mark.parametrize("tests", [[], {}, {"inputs": ["1"], "outputs": []}, [{"input": "1"}]])
def test_rows_without_usable_tests(tests: Any) -> None:
    with pytest.raises(Unusable):
        codeforces({"problem": "Add.", "tests": tests})


def test_usaco_rows_with_numbered_cases(sandbox: Sandbox, tmp_path: Path) -> None:
    row = {
        "problem_id": "1_bronze_add",
        "description": "Add.",
        "problem_level": "bronze",
        "runtime_limit": 2,
        "memory_limit": 256,
        "input": {"10": "4 5\n", "2": "1 2\n"},
        "output": {"2": "3\n", "10": "9\n"},
    }
    (tmp_path / "usaco_rows.jsonl").write_text(json.dumps(row))
    (task,), _ = load_benchmark("usaco", tmp_path)
    assert task.difficulty == "bronze"
    assert [t.stdin for t in task.tests] == ["1 2\n", "4 5\n"]  # type: ignore[union-attr]
    check(sandbox, task)


@pytest.mark.parametrize("names", [("I.1", "O.1"), ("1.in", "1.out")])
def test_usaco_cases_in_files(sandbox: Sandbox, tmp_path: Path, names: tuple[str, str]) -> None:
    rows = {"5_gold_add": {"cp_id": "5", "description": "Add.", "problem_level": "gold", "problem_id": "5_gold_add"}}
    rows["6_gold_none"] = {"cp_id": "6", "description": "No cases.", "problem_id": "6_gold_none"}
    (tmp_path / "usaco").mkdir()
    (tmp_path / "usaco" / "usaco_dict.json").write_text(json.dumps(rows))
    folder = tmp_path / "usaco" / "tests" / "5"
    folder.mkdir(parents=True)
    (folder / names[0]).write_bytes(b"4 5\r\n")
    (folder / names[1]).write_bytes(b"9\r\n")
    tasks, report = load_benchmark("usaco", tmp_path)
    assert [t.task_id for t in tasks] == ["usaco/5_gold_add"]
    assert list(report.skipped.values()) == [1]
    check(sandbox, tasks[0])


def ojbench(tmp_path: Path, config: str, files: dict[str, str], **more: str) -> Path:
    (tmp_path / "prompts").mkdir()
    row = {"id": 7, "prompt": "Add.", "dataset": "NOI", "language": "python", "difficulty": "easy"}
    other = {**row, "id": 8, "language": "cpp"}
    (tmp_path / "prompts" / "full.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(other) + "\n")
    folder = tmp_path / "NOI" / "7"
    folder.mkdir(parents=True)
    (folder / "init.yml").write_text(config)
    for name, text in more.items():
        (folder / name.replace("_py", ".py")).write_text(text)
    with zipfile.ZipFile(folder / "tests.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return tmp_path


TWO_CASES = (
    "archive: tests.zip\ntest_cases:\n- {in: 1.in, out: 1.out, points: 50}\n- batched:\n  - {in: 2.in, out: 2.out}\n"
)
FILES = {"1.in": "1 2\n", "1.out": "3\n", "2.in": "4 5\n", "2.out": "9\n"}


def test_ojbench(sandbox: Sandbox, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    tasks, report = load_benchmark("ojbench", ojbench(tmp_path, TWO_CASES, FILES))
    assert report.skipped == {"the prompt asks for another language than Python": 1}
    check(sandbox, tasks[0])


def test_ojbench_with_a_python_checker(sandbox: Sandbox, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    config = "archive: tests.zip\nchecker: check.py\ntest_cases:\n- {in: 1.in, out: 1.out}\n"
    place = ojbench(tmp_path, config, {"1.in": "5\n", "1.out": "1 4\n"}, check_py=CHECKER)
    (task,), _ = load_benchmark("ojbench", place)
    assert right(sandbox, task, "print(2, int(input()) - 2)\n")
    assert not right(sandbox, task, "print(2, int(input()))\n")


def test_ojbench_leaves_out_other_checkers(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    from didpo.errors import UserError

    config = TWO_CASES + "checker: {name: bridged, args: {files: check.cpp}}\n"
    with pytest.raises(UserError, match="needs the checker 'bridged'"):
        load_benchmark("ojbench", ojbench(tmp_path, config, FILES))


ICPC = {
    "id": "2024-A",
    "title": "Split",
    "description": "Write the number as a sum of two.",
    "input": "One number n.",
    "output": "Two numbers with the sum n.",
    "examples": [["5\n", "2 3\n"]],
    "test_cases": [["5\n", "1 4\n"], ["7\n", "3 4\n"]],
    "spj_code": CHECKER,
}


def test_icpc_eval_pairs_and_checker(sandbox: Sandbox) -> None:
    task = icpc_eval(ICPC)
    assert "One number n." in task.prompt and "Two numbers with the sum n." in task.prompt
    assert (len(task.visible_tests), len(task.hidden_tests)) == (1, 2)
    assert right(sandbox, task, "print(1, int(input()) - 1)\n")
    assert not right(sandbox, task, "print(1, int(input()))\n")
    objects = [{"input": a, "output": b} for a, b in ICPC["test_cases"]]
    assert icpc_eval({**ICPC, "test_cases": json.dumps(objects)}).hidden_tests == task.hidden_tests


def test_icpc_eval_without_a_python_checker() -> None:
    with pytest.raises(Unusable, match="not a Python program"):
        icpc_eval({**ICPC, "spj_code": "#include <testlib.h>\nint main() {}"})
    plain = icpc_eval({**ICPC, "spj_code": ""})
    assert all(t.checker is None for t in plain.tests)  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "clear"), [("codeforces", 79), ("code_contests", 79)])
def test_all_real_rows_load(shared_data: Path, sandbox: Sandbox, name: str, clear: int) -> None:
    tasks, report = load_benchmark(name, shared_data, several=True)
    assert (len(tasks), report.rows, report.skipped) == (100, 100, {})
    assert len(load_benchmark(name, shared_data)[0]) == clear  # the others accept several answers
    for task in tasks[::10]:
        assert not any(r.passed for r in sandbox.grade(task.files, task.tests[:5]).values()), task.task_id
