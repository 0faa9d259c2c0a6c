"""The interpreter starts without `site`; what it would provide to an ordinary program is there all the same."""

from __future__ import annotations

import pytest

from didpo.sandbox import open_sandbox
from didpo.types import StdioTest


@pytest.mark.parametrize("mode", ["batch", "fork"])
@pytest.mark.parametrize("ending", ["exit()", "quit()", "exit(0)"])
def test_programs_may_end_by_exit_and_quit(ending: str, mode) -> None:
    tests = [StdioTest(name=str(n), path="a.py", stdin=f"{n}\n", expected=str(n + 1)) for n in range(2)]
    with open_sandbox(require="process", workers=1) as sandbox:
        results = sandbox.grade(
            {"a.py": f"print(int(input()) + 1)\n{ending}\nprint('not reached')\n"}, tests, mode=mode
        )
    assert all(result.passed for result in results.values()), results


def test_a_non_zero_exit_status_fails() -> None:
    test = StdioTest(name="a", path="a.py", stdin="", expected="1")
    with open_sandbox(require="process", workers=1) as sandbox:
        result = sandbox.grade({"a.py": "print(1)\nexit(3)\n"}, [test])["a"]
    assert (result.verdict.value, result.detail) == ("runtime_error", "exit status 3")
