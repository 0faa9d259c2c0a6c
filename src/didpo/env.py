"""One coding episode: the agent's actions on a workspace, what it gets to see, and what each turn is worth.

A turn is `step(response, finish_reason)`. Who grades many episodes at once splits it: `begin` takes the action and
returns either the finished turn or a `GradeRequest`; `complete` takes the verdicts of that request.

Every turn records the verdict on every test for the code as it stands after the turn, shown to the agent or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from didpo.actions import Action, apply, parse
from didpo.errors import UserError
from didpo.sandbox import CommandResult, TestResult, Verdict
from didpo.types import EditSpan, Files, Step, StopReason, Task, Test

FinishReason = Literal["stop", "length"]
_OUTPUT_CHARACTERS = 2000  # of a command's output that the agent sees


class Grader(Protocol):
    """What an episode needs of a sandbox."""

    def grade(self, files: Files, tests: Sequence[Test]) -> Mapping[str, TestResult]: ...

    def run_command(self, files: Files, command: str) -> CommandResult: ...


@dataclass(frozen=True, kw_only=True)
class EnvSettings:
    """What the agent sees and is paid for.

    `feedback`: "blind" shows whether an edit was applied; "exec" also runs the agent's own commands; "interactive" also
    shows the verdicts on the visible tests after each turn. `min_turns`: turns before <finish> is allowed.
    `reward_form`, with f the fraction of all tests passed after a turn, and 1 added where every test passes:
    "graded" pays step_coef * f for each edit that leaves the task unsolved; "potential" pays step_coef * (change of f),
    so that a late finish earns no more than an early one; "outcome" pays nothing else.
    `invalid_penalty` is taken off a turn whose action cannot be read or applied.
    """

    feedback: Literal["blind", "exec", "interactive"] = "interactive"
    max_turns: int = 3
    min_turns: int = 0
    reward_form: Literal["graded", "potential", "outcome"] = "graded"
    step_coef: float = 0.15
    invalid_penalty: float = 0.01

    def __post_init__(self) -> None:
        if self.max_turns < 1 or not 0 <= self.min_turns < self.max_turns:
            raise ValueError("max_turns is at least 1, and min_turns is below it")


@dataclass(frozen=True, kw_only=True)
class GradeRequest:
    """Ask a sandbox for the verdicts on `tests`, then call `complete` with them."""

    files: Files
    tests: tuple[Test, ...]


@dataclass(frozen=True, kw_only=True)
class EnvStep:
    """One turn. After a sandbox error there is no score, no outcome and no reward.

    `shown` holds the outcomes that the agent may see (visible tests, in interactive mode), else None. `outcome` is set
    on the last turn: 1.0 if every test passes, else 0.0; None after a sandbox error.
    """

    response: str
    finish_reason: FinishReason
    action: Action  # of kind "invalid" where an edit was refused
    observation: str
    error: str | None  # why the action was not taken, or what failed in the sandbox
    reward: float
    done: bool
    stop_reason: StopReason | None
    outcome: float | None
    step_score: float | None
    test_outcomes: dict[str, bool] | None
    verdicts: dict[str, str]  # test name -> verdict
    shown: dict[str, bool] | None
    files_before: dict[str, str]
    files_after: dict[str, str]
    edits: tuple[EditSpan, ...]

    def to_step(self) -> Step:
        """The turn as recorded data, without token ids."""
        return Step(
            response=self.response,
            reward=self.reward,
            files_before=self.files_before,
            files_after=self.files_after,
            step_score=self.step_score,
            test_outcomes=self.test_outcomes,
            edits=self.edits,
            observation=self.observation,
            action=self.action.kind,
            finish_reason=self.finish_reason,
        )


@dataclass(kw_only=True)
class _Turn:
    """A turn between `begin` and its verdicts."""

    response: str
    finish_reason: FinishReason
    action: Action
    files_before: dict[str, str]
    edits: tuple[EditSpan, ...] = ()
    output: str | None = None  # of a command


class CodingEnv:
    """An episode of `task`. `files` is the workspace as it stands. Episodes share nothing but the sandbox."""

    def __init__(self, task: Task, sandbox: Grader, *, settings: EnvSettings | None = None) -> None:
        if not task.tests:
            raise UserError(f"task {task.task_id} has no tests: nothing could be graded")
        self.task = task
        self.settings = settings or EnvSettings()
        self.sandbox = sandbox
        self.reset()

    def reset(self) -> str:
        """Start anew. Returns the first observation: the task's text."""
        self.files: dict[str, str] = dict(self.task.files)
        self.turns = 0
        self.done = False
        self._results: Mapping[str, TestResult] | None = None  # of `files`; None: not graded yet
        self._potential = 0.0
        self._turn: _Turn | None = None
        return self.task.prompt

    def step(self, response: str, finish_reason: FinishReason = "stop") -> EnvStep:
        """Take one turn and grade it. A response that was cut off ("length") ends the episode; it is not run."""
        begun = self.begin(response, finish_reason)
        if isinstance(begun, EnvStep):
            return begun
        return self.complete(self.sandbox.grade(begun.files, begun.tests))

    def begin(self, response: str, finish_reason: FinishReason = "stop") -> EnvStep | GradeRequest:
        """Take the action (a command is run at once). A turn that changes nothing keeps the verdicts it had."""
        assert not self.done and self._turn is None, "the episode is over, or the last turn was not completed"
        self.turns += 1
        turn = _Turn(
            response=response,
            finish_reason=finish_reason,
            action=self._read(response, finish_reason),
            files_before=dict(self.files),
        )
        self._turn = turn
        if turn.action.kind == "edit":
            applied = apply(turn.action, self.files)
            if applied.error:
                turn.action = Action(kind="invalid", error=applied.error)
            self.files, turn.edits = applied.files, applied.spans
        elif turn.action.kind == "run":
            assert turn.action.command is not None
            ran = self.sandbox.run_command(self.files, turn.action.command)
            if ran.verdict is Verdict.SANDBOX_ERROR:
                return self.fail(ran.output)
            self.files, turn.output = dict(ran.files), _command_text(ran)
        if self.files != turn.files_before:
            self._results = None
        if self._results is None:
            return GradeRequest(files=self.files, tests=self.task.tests)
        return self._close(turn)

    def complete(self, results: Mapping[str, TestResult]) -> EnvStep:
        """End the turn with the verdicts on its code. Verdicts that the sandbox could not give end the episode."""
        assert self._turn is not None, "complete() follows a begin() that asked for verdicts"
        broken = [r for t in self.task.tests if (r := results[t.name]).verdict is Verdict.SANDBOX_ERROR]
        if broken:
            return self.fail(f"{broken[0].name}: {broken[0].detail}")
        self._results = {t.name: results[t.name] for t in self.task.tests}
        return self._close(self._turn)

    def fail(self, message: str) -> EnvStep:
        """End the episode because the sandbox failed: no reward, no score."""
        assert self._turn is not None
        return self._end(self._turn, error=message, reward=0.0, stop_reason=StopReason.SANDBOX_ERROR, results=None)

    def _read(self, response: str, finish_reason: FinishReason) -> Action:
        if finish_reason == "length":
            return Action(kind="invalid", error="the response was cut off: its action was not run")
        action = parse(response, default_path=next(iter(self.files)) if len(self.files) == 1 else None)
        if action.kind == "run" and self.settings.feedback == "blind":
            return Action(kind="invalid", error="commands are not run in this environment")
        if action.kind == "finish" and self.turns <= self.settings.min_turns:
            return Action(kind="invalid", error=f"<finish> is allowed after {self.settings.min_turns} turns")
        return action

    def _close(self, turn: _Turn) -> EnvStep:
        assert self._results is not None
        fraction = sum(r.passed for r in self._results.values()) / len(self._results)
        solved = all(r.passed for r in self._results.values())
        stop: StopReason | None = None
        if turn.finish_reason == "length":
            stop = StopReason.LENGTH
        elif solved:
            stop = StopReason.SOLVED
        elif turn.action.kind == "finish":
            stop = StopReason.FINISHED
        elif self.turns >= self.settings.max_turns:
            stop = StopReason.TURN_LIMIT
        reward = self._reward(turn, fraction, solved)
        return self._end(turn, error=turn.action.error, reward=reward, stop_reason=stop, results=self._results)

    def _reward(self, turn: _Turn, fraction: float, solved: bool) -> float:
        settings = self.settings
        gain, self._potential = fraction - self._potential, fraction
        if turn.finish_reason == "length":
            return 0.0
        reward = 1.0 if solved else 0.0
        if settings.reward_form == "potential":
            reward += settings.step_coef * gain
        elif settings.reward_form == "graded" and turn.action.kind == "edit" and not solved:
            reward += settings.step_coef * fraction
        if turn.action.kind == "invalid":
            reward -= settings.invalid_penalty
        return reward

    def _end(
        self,
        turn: _Turn,
        *,
        error: str | None,
        reward: float,
        stop_reason: StopReason | None,
        results: Mapping[str, TestResult] | None,
    ) -> EnvStep:
        self._turn = None
        self.done = stop_reason is not None
        outcomes = None if results is None else {name: r.passed for name, r in results.items()}
        shown = None
        if outcomes is not None and self.settings.feedback == "interactive":
            shown = {test.name: outcomes[test.name] for test in self.task.visible_tests}
        return EnvStep(
            response=turn.response,
            finish_reason=turn.finish_reason,
            action=turn.action,
            observation=_observation(turn, shown, results),
            error=error,
            reward=reward,
            done=self.done,
            stop_reason=stop_reason,
            outcome=float(stop_reason is StopReason.SOLVED) if self.done and outcomes is not None else None,
            step_score=None if outcomes is None else sum(outcomes.values()) / len(outcomes),
            test_outcomes=outcomes,
            verdicts={} if results is None else {name: str(r.verdict) for name, r in results.items()},
            shown=shown,
            files_before=turn.files_before,
            files_after=dict(self.files),
            edits=turn.edits,
        )


def _observation(turn: _Turn, shown: Mapping[str, bool] | None, results: Mapping[str, TestResult] | None) -> str:
    """What the agent reads after the turn."""
    if turn.action.kind == "invalid":
        text = f"Nothing was done: {turn.action.error}\n"
    elif turn.action.kind == "edit":
        text = "The edit was applied.\n"
    else:
        text = turn.output or ""
    if shown and results is not None:
        text += f"{sum(shown.values())} of {len(shown)} visible tests pass.\n"
        failed = next((name for name, passed in shown.items() if not passed), None)
        if failed is not None:
            text += f"First failure: {failed}: {results[failed].detail or results[failed].verdict}\n"
    return text


def _command_text(ran: CommandResult) -> str:
    output = ran.output
    if len(output) > _OUTPUT_CHARACTERS:
        half = _OUTPUT_CHARACTERS // 2
        output = f"{output[:half]}\n... {len(output) - 2 * half} characters left out ...\n{output[-half:]}"
    if output and not output.endswith("\n"):
        output += "\n"
    note = "" if ran.verdict in (Verdict.PASSED, Verdict.RUNTIME_ERROR) else f", {ran.verdict}"
    return f"{output}[exit code {ran.exit_code}{note}]\n"
