"""DS-1000: snippets run apart from their tests; results cross as data."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from typing import Any

import pytest

from didpo.sandbox import Sandbox
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.ds1000 import TEST_PRELUDE, ds1000, missing_imports
from didpo.tasks.reading import Unusable
from didpo.validate import passes

CONTEXT = '''import numpy as np
import copy
import tokenize, io


def generate_test_case(test_case_id):
    test_input = np.array([3, 1, 2]) * test_case_id
    return test_input, np.sort(copy.deepcopy(test_input))


def exec_test(result, ans):
    np.testing.assert_array_equal(result, ans)
    return 1


exec_context = r"""
import numpy as np
a = test_input
[insert]
result = b
"""


def test_execution(solution: str):
    code = exec_context.replace("[insert]", solution)
    for i in range(2):
        test_input, expected_result = generate_test_case(i + 1)
        test_env = {"test_input": test_input}
        exec(code, test_env)
        assert exec_test(test_env["result"], expected_result)


def test_string(solution: str):
    assert "for" not in solution.split()
'''
ROW: dict[str, Any] = {
    "prompt": "Sort a into b.",
    "reference_code": "b = np.sort(a)\n",
    "code_context": CONTEXT,
    "metadata": {"problem_id": 1, "library": "Numpy", "perturbation_type": "Origin"},
}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("b = np.sort(a)\n", [True, True]),
        ("b = sorted(a)\n", [True, True]),
        ("b = np.array([1, 2, 3])\n", [False, True]),  # right for the first case only
        ("b = a\nfor i in [1]:\n    b = np.sort(a)\n", [True, False]),
        ("raise SystemExit(0)\n", [False, True]),
        ("import os\nos._exit(0)\n", [False, True]),
        ("class Same(list):\n    def __eq__(self, other):\n        return True\nb = Same([1])\n", [False, True]),
        ("raise NotImplementedError\n", [False, True]),
    ],
)
def test_verdicts(sandbox: Sandbox, code: str, expected: list[bool]) -> None:
    task = ds1000(ROW)
    results = sandbox.grade({**task.files, "solution.py": code}, task.tests)
    assert [r.passed for r in results.values()] == expected


def test_the_stub_never_passes_all(sandbox: Sandbox) -> None:
    task = ds1000(ROW)
    assert not passes(sandbox.grade(task.files, task.tests))


class Opens:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("/dev/null", "rb")


@pytest.mark.parametrize("value", [Opens(), print, pytest.raises])
def test_results_are_data(value: object) -> None:
    """The tests' side refuses functions and classes other than those of arrays and frames."""
    space: dict[str, Any] = {}
    exec(TEST_PRELUDE, space)
    space["run"] = lambda code, data: pickle.dumps(value)
    with pytest.raises(pickle.UnpicklingError, match="the result holds"):
        space["exec"]("", {"test_input": 1})


def test_dotted_names_are_refused() -> None:
    space: dict[str, Any] = {}
    exec(TEST_PRELUDE, space)
    # STACK_GLOBAL of numpy "ndarray.tofile": a method is reached through an allowed class
    crafted = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    space["run"] = lambda code, data: crafted
    with pytest.raises(pickle.UnpicklingError, match="the result holds"):
        space["exec"]("", {"test_input": 1})


def test_other_libraries_are_counted() -> None:
    with pytest.raises(Unusable, match="Pytorch"):
        ds1000({**ROW, "metadata": {"problem_id": 2, "library": "Pytorch"}})
    assert missing_imports("import numpy\n    from no_such_library.x import y\n") == ["no_such_library"]


def test_real_numpy_rows(shared_data: Path, sandbox: Sandbox) -> None:
    tasks, report = load_benchmark("ds1000", shared_data)
    assert report.rows == 1000 and report.tasks + sum(report.skipped.values()) == 1000
    numpy = [t for t in tasks if t.meta["library"] == "Numpy"]
    both = all(importlib.util.find_spec(name) for name in ("pandas", "scipy"))
    assert len(numpy) >= (200 if both else 80)  # some NumPy problems are checked with the other two
    for task in numpy[3::25]:
        assert task.reference is not None
        assert passes(sandbox.grade(task.reference, task.tests)), task.task_id
        assert not passes(sandbox.grade(task.files, task.tests)), task.task_id
