"""The audit of verdicts: programs that keep state between the cases of one process are found out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from didpo import CallTest, Step, Task, Trajectory, TrajectoryGroup
from didpo.sandbox import open_sandbox
from didpo.session import Session

HONEST = "def f(x):\n    return x + 1\n"
# Counts its calls in a module that outlives the fresh `__main__` of a case.
COUNTING = "import string\ndef f(x):\n    string.n = getattr(string, 'n', -1) + 1\n    return string.n + 1\n"


@pytest.mark.parametrize(("code", "share"), [(HONEST, 0.0), (COUNTING, 0.5)])
def test_state_between_cases_is_found_by_the_audit(code: str, share: float) -> None:
    tests = tuple(CallTest(name=str(n), path="a.py", function="f", args=(n,), expected=n + 1) for n in range(2))
    task = Task(task_id="t", prompt="", files={"a.py": ""}, hidden_tests=tests)
    with open_sandbox(require="process", workers=1) as sandbox:
        shared = sandbox.grade({"a.py": code}, tests, mode="batch")
        outcomes = {name: result.passed for name, result in shared.items()}
        assert all(outcomes.values())
        step = Step(response="", files_after={"a.py": code}, test_outcomes=outcomes)
        group = TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[step], outcome=1.0)])
        session = SimpleNamespace(train_tasks=[task], sandbox=sandbox)
        assert Session.audit_grades(session, [group], seed=0) == share  # type: ignore[arg-type]
