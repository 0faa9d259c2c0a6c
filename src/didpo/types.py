"""The data that flows through every layer: tasks, steps, trajectories, groups, and the credit computed for them.

Only the standard library and numpy. Each type can be built by hand from plain texts, so that recorded rollouts of any
agent can be credited without a model, a tokenizer or a sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # numpy costs 0.15 s: loaded where it is used, not by `import didpo`
    import numpy as np

Files = Mapping[str, str]  # path relative to the workspace -> text; only "\n" ends a line, all else is content


# ---------------------------------------------------------------- tests and tasks


@dataclass(frozen=True, kw_only=True)
class CallTest:
    """Call `function(*args)` of `path` and compare the returned value with `expected`.

    `args` and `expected` are plain values (None, bool, int, float, str, list, tuple, dict, set). `function` may be
    dotted ("Solution.twoSum" makes an instance first). A tuple equals the list with the same items.
    """

    name: str
    path: str
    function: str
    args: tuple[Any, ...] = ()
    expected: Any = None


@dataclass(frozen=True, kw_only=True)
class StdioTest:
    """Run `path` as a program with `stdin` and judge what it prints.

    `compare` is "tokens" (numbers within 1e-6 absolute or relative), "exact" or "unordered" (lines in any order).
    `checker`, where given, is a Python program that decides instead: run with the files input, expected and output as
    arguments; exit 0 accepts.
    """

    name: str
    path: str
    stdin: str
    expected: str
    compare: Literal["tokens", "exact", "unordered"] = "tokens"
    checker: str | None = None


@dataclass(frozen=True, kw_only=True)
class AssertTest:
    """Run `code` (plain asserts) against the names that `path` defines; passes if it ends without an exception."""

    name: str
    path: str
    code: str


@dataclass(frozen=True, kw_only=True)
class PytestTest:
    """The pytest node `node` must be seen to run and pass, in a fresh copy of the workspace where `files` (tests,
    conftest, runner configuration) are put back first."""

    name: str
    node: str
    files: Mapping[str, str] = field(default_factory=dict)


Test = CallTest | StdioTest | AssertTest | PytestTest


@dataclass(frozen=True, kw_only=True)
class Task:
    """A problem given as a workspace that fails its tests. Test names are unique within a task."""

    task_id: str
    prompt: str
    files: Files
    visible_tests: tuple[Test, ...] = ()
    hidden_tests: tuple[Test, ...] = ()
    difficulty: str = ""
    reference: Files | None = None  # files of a right solution, for validation and scripted experts
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tests(self) -> tuple[Test, ...]:
        return (*self.visible_tests, *self.hidden_tests)


# ---------------------------------------------------------------- rollouts


class StopReason(StrEnum):
    SOLVED = "solved"  # every test passes
    FINISHED = "finished"  # the agent said so
    TURN_LIMIT = "turn_limit"
    LENGTH = "length"  # a response hit the token limit: cut off, its action is not run
    TOKEN_BUDGET = "token_budget"  # the rollout used up its tokens
    DEADLINE = "deadline"  # the rollout used up its time
    SANDBOX_ERROR = "sandbox_error"  # the verifier failed, not the agent: no reward, no baseline
    MODEL_ERROR = "model_error"  # the sampler failed, not the policy

    @property
    def failed(self) -> bool:
        """True where the outcome says nothing about the policy."""
        return self in (StopReason.SANDBOX_ERROR, StopReason.MODEL_ERROR)


@dataclass(frozen=True, kw_only=True)
class EditSpan:
    """One piece of text that a response wrote into (or searched in) a file.

    `start`, `end` are the character range of the payload in the response: `response[start:end] == text`.
    kind: "add" (replacement or inserted text), "del" (search text that is replaced) or "overwrite" (a whole file).
    `line` is the 0-based line of the file before this edit at which the text stands ("del"), goes in ("add"), or 0.
    """

    path: str
    kind: Literal["add", "del", "overwrite"]
    text: str
    start: int
    end: int
    line: int = 0


@dataclass(kw_only=True)
class Step:
    """One turn: what the policy wrote, what it was worth, and the files as they were before it acted.

    `reward` is the whole reward of the step; on the last step it includes the terminal reward. Where no step of a
    trajectory carries a reward, the trajectory's `outcome` counts as the reward of its last step.
    `token_offsets` are character ranges [start, end) of the response, one per sampled token, T of them; None means one
    token per character. An end mark has an empty range; several byte tokens may share the range of one character.
    `edits` are the accepted edits as spans of the response; None means they are parsed from the response by
    `didpo.actions` (and checked against `files_before` where it is given). `()` means: no edit.
    `files_after` may be left None: it is then computed from `files_before` and the response.
    `step_score` is the verifier's score of the code right after the step (fraction of tests passed, 0..1);
    `test_outcomes` holds the same, test by test.
    """

    response: str
    reward: float | None = None
    files_before: Files | None = None
    files_after: Files | None = None
    token_offsets: Sequence[tuple[int, int]] | None = None
    step_score: float | None = None
    test_outcomes: Mapping[str, bool] | None = None
    edits: Sequence[EditSpan] | None = None
    prompt: str | None = None
    observation: str | None = None
    action: str | None = None  # "edit", "run", "finish" or "invalid"
    prompt_ids: Sequence[int] | None = None  # [P]
    response_ids: Sequence[int] | None = None  # [T], end mark included
    rollout_logprobs: Sequence[float] | None = None  # [T], natural log, of the distribution sampled from
    finish_reason: Literal["stop", "length"] | None = None

    @property
    def n_tokens(self) -> int:
        """T: sampled tokens, or characters where no offsets are recorded."""
        return len(self.response) if self.token_offsets is None else len(self.token_offsets)


@dataclass(kw_only=True)
class Trajectory:
    """One rollout of a task. `outcome` is the verifier's final score (1 solved, 0 not, or graded)."""

    steps: list[Step]
    outcome: float | None = None
    stop_reason: StopReason = StopReason.FINISHED
    error: str | None = None
    trajectory_id: str = ""
    seed: int | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stop_reason = StopReason(self.stop_reason)  # its text will do; ValueError for any other

    @property
    def failed(self) -> bool:
        """A failed rollout earns no credit and enters no baseline."""
        return self.stop_reason.failed

    @property
    def rewards(self) -> np.ndarray:
        """Reward of each step, float64 [S]; see `Step.reward` for where the outcome comes in."""
        import numpy as np

        rewards = np.array([s.reward or 0.0 for s in self.steps], dtype=np.float64)
        if self.steps and self.outcome is not None and not rewards.any():
            rewards[-1] = self.outcome
        return rewards


@dataclass(kw_only=True)
class TrajectoryGroup:
    """All rollouts of one task that are compared with each other."""

    task_id: str
    trajectories: list[Trajectory]
    group_id: str = ""


# ---------------------------------------------------------------- credit


@dataclass(frozen=True, kw_only=True)
class AnchorMember:
    """One occurrence of an anchor: where it stands, its signal and the local advantage it got.

    `spans` are character ranges of the response (several, where comment or blank lines lie between the matched lines).
    """

    trajectory: int
    step: int
    path: str
    spans: tuple[tuple[int, int], ...]
    signal: float
    advantage: float


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A fragment of code that several rollouts share, or a region that they fill differently, with its statistics."""

    anchor_id: int
    kind: str  # "function", "block", "fragment", "boilerplate", or "region"
    edit_kind: str  # "add", "del" or "overwrite"
    lines: tuple[str, ...]  # normalised lines of the representative
    length: float  # mean length L in lines
    n_rows: int
    groupability: float
    mean_signal: float
    contrast: float | None  # mean of the members minus mean of the others; None where there are no others
    members: tuple[AnchorMember, ...]
    label: str = ""


@dataclass(kw_only=True)
class GroupCredit:
    """Token advantages of a group.

    advantages[g][s]: float32 [T] of step s of trajectory g. parts[name][g][s]: the summands ("episode", "diff", ...),
    same shapes; they add up to the advantages. `assigned[g]` is False for a failed rollout: it is to leave the loss and
    its denominators (its arrays are zeros, which are not an advantage of zero).
    """

    algorithm: str
    advantages: list[list[np.ndarray]]
    parts: dict[str, list[list[np.ndarray]]]
    assigned: list[bool]
    anchors: list[Anchor] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # plain words: which signal was used, what was left out and why
