"""Episodes: feedback, rewards, stop reasons, and the verdicts recorded for every turn. Graded by the real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from didpo.env import CodingEnv, EnvSettings, EnvStep, GradeRequest
from didpo.errors import UserError
from didpo.sandbox import Sandbox, TestResult, Verdict, open_sandbox
from didpo.types import CallTest, StopReason, Task


def call(name: str, expected: int) -> CallTest:
    return CallTest(name=name, path="s.py", function=name.partition("/")[0], args=(1,), expected=expected)


TASK = Task(
    task_id="t",
    prompt="f: x plus 1\ng: x times 5\n",
    files={"s.py": "def f(x):\n    return x\ndef g(x):\n    return x\n"},
    visible_tests=(call("f/0", 2), call("g/0", 5)),
    hidden_tests=(call("f/1", 2), call("g/1", 5)),
)
FIX_F = "<edit s.py><search>def f(x):\n    return x\n</search><replace>def f(x):\n    return x + 1\n</replace></edit>"
FIX_G = "<edit s.py><search>def g(x):\n    return x\n</search><replace>def g(x):\n    return x * 5\n</replace></edit>"
REFUSED = "<edit s.py><search>return x</search><replace>return 0</replace></edit>"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox(require="process", workers=1) as opened:
        yield opened


class Counting:
    """The real sandbox, with a count of what it was asked to grade."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self.graded = sandbox, 0

    def grade(self, files: Any, tests: Any) -> Any:
        self.graded += 1
        return self.sandbox.grade(files, tests)

    def run_command(self, files: Any, command: str) -> Any:
        return self.sandbox.run_command(files, command)


def play(sandbox: Any, responses: list[str], **settings: Any) -> list[EnvStep]:
    env = CodingEnv(TASK, sandbox, settings=EnvSettings(**settings))
    return [env.step(response) for response in responses]


def test_an_episode_that_is_solved(sandbox: Sandbox) -> None:
    first, second = play(sandbox, [FIX_F, FIX_G])
    assert first.test_outcomes == {"f/0": True, "g/0": False, "f/1": True, "g/1": False}
    assert (first.step_score, first.reward, first.done, first.outcome) == (0.5, pytest.approx(0.075), False, None)
    assert first.shown == {"f/0": True, "g/0": False}
    assert first.observation.startswith("The edit was applied.\n1 of 2 visible tests pass.\nFirst failure: g/0: ")
    assert first.verdicts["g/1"] == "wrong_answer"
    assert [(s.kind, first.response[s.start : s.end] == s.text) for s in first.edits] == [("del", True), ("add", True)]
    assert first.files_before == TASK.files
    assert first.files_after == second.files_before
    assert (second.reward, second.done, second.stop_reason, second.outcome) == (1.0, True, StopReason.SOLVED, 1.0)
    step = first.to_step()
    assert (step.action, step.step_score, step.reward) == ("edit", 0.5, first.reward)


@pytest.mark.parametrize(
    ("form", "rewards"),
    [("graded", [0.075, 0.075, 1.0]), ("potential", [0.075, 0.0, 0.075 + 1.0]), ("outcome", [0.0, 0.0, 1.0])],
)
def test_reward_forms(sandbox: Sandbox, form: Any, rewards: list[float]) -> None:
    same = "<edit s.py><search>def g</search><replace>def g</replace></edit>"
    steps = play(sandbox, [FIX_F, same, FIX_G], reward_form=form)
    assert [step.reward for step in steps] == pytest.approx(rewards)


def test_with_potentials_a_late_finish_earns_no_more(sandbox: Sandbox) -> None:
    both = FIX_F + FIX_G
    for responses in (
        [both],
        [FIX_F, FIX_G],
        [FIX_G, "<edit s.py><search>def f</search><replace>def f</replace></edit>", FIX_F],
    ):
        assert sum(s.reward for s in play(sandbox, responses, reward_form="potential")) == pytest.approx(1.15)


def test_refused_and_unreadable_actions(sandbox: Sandbox) -> None:
    counting = Counting(sandbox)
    refused, nonsense, last = play(counting, [REFUSED, "hello", FIX_F], max_turns=3)
    for step in (refused, nonsense):
        assert (step.action.kind, step.reward, step.edits, step.done) == ("invalid", -0.01, (), False)
        assert step.files_after == step.files_before == TASK.files
        assert step.step_score == 0.0  # recorded for turns that change nothing, too
        assert step.observation.startswith("Nothing was done: ")
    assert "2 places" in (refused.error or "")
    assert counting.graded == 2  # the files at the start once, and once after the only change
    assert (last.stop_reason, last.outcome) == (StopReason.TURN_LIMIT, 0.0)


@pytest.mark.parametrize("path", ["/etc/passwd", "../s.py", "a/../../b"])
def test_no_edit_leaves_the_workspace(sandbox: Sandbox, path: str) -> None:
    (step,) = play(sandbox, [f"<edit {path}><code>x</code></edit>"])
    assert step.action.kind == "invalid"
    assert step.files_after == TASK.files


def test_a_cut_off_response_is_not_run(sandbox: Sandbox) -> None:
    env = CodingEnv(TASK, sandbox)
    step = env.step(FIX_F + FIX_G, "length")
    assert (step.done, step.stop_reason, step.outcome, step.reward) == (True, StopReason.LENGTH, 0.0, 0.0)
    assert step.files_after == TASK.files
    assert step.edits == ()
    assert env.done


def test_a_cut_off_response_never_earns_success(sandbox: Sandbox) -> None:
    solved = Task(task_id="t", prompt="", files={"s.py": "def f(x):\n    return 2\n"}, hidden_tests=(call("f/0", 2),))
    step = CodingEnv(solved, sandbox).step("cut", "length")
    assert (step.reward, step.outcome, step.step_score, step.stop_reason) == (0.0, 0.0, 1.0, StopReason.LENGTH)


def test_finish(sandbox: Sandbox) -> None:
    early, edit, late = play(sandbox, ["<finish>", FIX_F, "<finish>"], min_turns=2, max_turns=5)
    assert (early.action.kind, early.error) == ("invalid", "<finish> is allowed after 2 turns")
    assert edit.reward == pytest.approx(0.075)
    assert (late.stop_reason, late.reward, late.outcome, late.step_score) == (StopReason.FINISHED, 0.0, 0.0, 0.5)


@pytest.mark.parametrize("feedback", ["blind", "exec", "interactive"])
def test_feedback(sandbox: Sandbox, feedback: Literal["blind", "exec", "interactive"]) -> None:
    edit, run = play(sandbox, [FIX_F, "<run>cat s.py; echo x > new.txt; exit 3</run>"], feedback=feedback)
    assert edit.step_score == 0.5  # scored in every mode
    assert edit.test_outcomes is not None
    assert (edit.shown is not None) == (feedback == "interactive")
    assert ("visible tests" in edit.observation) == (feedback == "interactive")
    if feedback == "blind":
        assert (run.action.kind, run.error) == ("invalid", "commands are not run in this environment")
    else:
        assert run.observation.startswith("def f(x):\n    return x + 1\n")
        assert "[exit code 3]" in run.observation
        assert run.files_after == {**edit.files_after, "new.txt": "x\n"}
        assert (run.reward, run.edits) == (0.0, ())
        assert "expected" not in run.observation or feedback == "interactive"


def test_long_output_is_cut_with_a_notice(sandbox: Sandbox) -> None:
    (step,) = play(sandbox, ["<run>head -c 9000 /dev/zero | tr '\\0' y</run>"], feedback="exec")
    assert "7000 characters left out" in step.observation
    assert len(step.observation) < 2200


def broken(message: str) -> dict[str, TestResult]:
    return {t.name: TestResult(name=t.name, verdict=Verdict.SANDBOX_ERROR, detail=message) for t in TASK.tests}


def test_a_sandbox_failure_is_no_reward() -> None:
    env = CodingEnv(TASK, sandbox=None)  # type: ignore[arg-type]  # not asked: the verdicts are given below
    assert isinstance(env.begin(FIX_F), GradeRequest)
    step = env.complete(broken("no worker"))
    assert (step.done, step.stop_reason, step.error) == (True, StopReason.SANDBOX_ERROR, "f/0: no worker")
    assert (step.reward, step.outcome, step.step_score, step.test_outcomes, step.shown) == (0.0, None, None, None, None)


def test_turns_can_be_graded_together(sandbox: Sandbox) -> None:
    envs = [CodingEnv(TASK, sandbox) for _ in range(3)]
    begun = [env.begin(response) for env, response in zip(envs, [FIX_F, FIX_G, FIX_F + FIX_G], strict=True)]
    requests = [b for b in begun if isinstance(b, GradeRequest)]
    results = sandbox.grade_many([(r.files, r.tests) for r in requests])
    steps = [env.complete(result) for env, result in zip(envs, results, strict=True)]
    assert [step.step_score for step in steps] == [0.5, 0.5, 1.0]
    assert isinstance(envs[0].begin("<finish>"), EnvStep)  # nothing changed: nothing to grade
    assert TASK.files["s.py"].count("return x\n") == 2  # episodes share nothing


def test_reset_starts_anew(sandbox: Sandbox) -> None:
    env = CodingEnv(TASK, sandbox)
    first = env.step(FIX_F + FIX_G)
    assert env.reset() == TASK.prompt
    assert env.step(FIX_F + FIX_G) == first


def test_a_task_without_tests_is_refused() -> None:
    with pytest.raises(UserError, match="has no tests"):
        CodingEnv(Task(task_id="t", prompt="", files={}), sandbox=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="min_turns"):
        EnvSettings(max_turns=2, min_turns=2)
