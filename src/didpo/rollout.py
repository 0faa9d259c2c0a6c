"""Groups of rollouts: all that are live in a turn are sampled in one call and graded in one call.

A rollout's randomness comes from (seed, task, index in its group, turn) alone. Whatever goes wrong outside the policy
is data: it ends the rollout concerned with a stop reason and an error, and its siblings go on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from didpo.agent import Agent
from didpo.env import CodingEnv, EnvStep, GradeRequest
from didpo.sampling import Sample, Sampler
from didpo.sandbox import TestResult, Verdict
from didpo.types import Files, StopReason, Task, Test, Trajectory, TrajectoryGroup

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """How a group of rollouts is drawn."""

    group_size: int
    max_new_tokens: int  # per response
    temperature: float = 1.0  # 0: greedy
    token_budget: int | None = None  # sampled tokens per rollout
    deadline_s: float | None = None  # wall seconds from the start of the batch; no turn begins after it


class Seconds(dict[str, float]):
    """Wall seconds by part ("sample", "grade", ...)."""

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self[part] = self.get(part, 0.0) + time.monotonic() - began


def run_groups(
    tasks: Sequence[Task],
    *,
    settings: RolloutSettings,
    seed: int,
    make_env: Callable[[Task], CodingEnv],
    grade_many: Callable[[Sequence[tuple[Files, Sequence[Test]]]], Sequence[Mapping[str, TestResult]]],
    agent: Agent,
    encode: Callable[[str], list[int]],
    sampler: Sampler,
    seconds: Seconds | None = None,
) -> list[TrajectoryGroup]:
    """One group of `settings.group_size` rollouts per task, in the order of `tasks`.

    Each turn gives one `Step`: prompt ids as fed, response ids as sampled. `encode` makes the ids of a prompt;
    `grade_many` is the sandbox's. `seconds` collects the time spent in sampling and in grading.
    """
    seconds = Seconds() if seconds is None else seconds
    rollouts = [
        _Rollout(task=task, index=index, seed=derive_seed(seed, task.task_id, index), env=make_env(task))
        for task in tasks
        for index in range(settings.group_size)
    ]
    began = time.monotonic()
    while live := [rollout for rollout in rollouts if rollout.live]:
        if settings.deadline_s is not None and time.monotonic() - began > settings.deadline_s:
            for rollout in live:
                rollout.stop(StopReason.DEADLINE)
            break
        with seconds.measure("sample"):
            for rollout in live:
                rollout.write_prompt(agent, encode)
            samples = _sample(live, sampler, settings)
        with seconds.measure("grade"):
            _act(samples, grade_many, settings)
    size = settings.group_size
    return [
        TrajectoryGroup(
            task_id=task.task_id,
            group_id=f"{task.task_id}/{seed}",
            trajectories=[rollout.trajectory for rollout in rollouts[i * size : (i + 1) * size]],
        )
        for i, task in enumerate(tasks)
    ]


def derive_seed(*parts: object) -> int:
    """A 63-bit seed that depends on all parts, the same on every machine."""
    digest = hashlib.blake2b("\x00".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


# ---------------------------------------------------------------- one turn of many rollouts


def _sample(live: Sequence[_Rollout], sampler: Sampler, settings: RolloutSettings) -> list[tuple[_Rollout, Sample]]:
    """One response per rollout, in one call; if that fails, each alone, so that only the culprits are lost."""

    def generate(rollouts: Sequence[_Rollout]) -> list[Sample]:
        return sampler.generate(
            [rollout.prompt_ids for rollout in rollouts],
            max_new_tokens=[rollout.token_limit(settings) for rollout in rollouts],
            temperature=settings.temperature,
            seeds=[derive_seed(rollout.seed, len(rollout.trajectory.steps)) for rollout in rollouts],
        )

    return _together_or_alone(live, generate, StopReason.MODEL_ERROR)


def _act(samples: Sequence[tuple[_Rollout, Sample]], grade_many: Callable[..., Any], settings: RolloutSettings) -> None:
    """Take the sampled actions, grade the programs they leave in one call, and record the turns."""
    waiting: list[tuple[_Rollout, GradeRequest]] = []
    sample_of = {id(rollout): sample for rollout, sample in samples}
    for rollout, sample in samples:
        try:
            begun = rollout.env.begin(sample.text, sample.finish_reason)
        except Exception as error:  # the environment's own failure is no fault of the policy
            rollout.fail(StopReason.SANDBOX_ERROR, error)
            continue
        if isinstance(begun, GradeRequest):
            waiting.append((rollout, begun))
        else:
            rollout.record(sample, begun, settings)
    request_of = {id(rollout): request for rollout, request in waiting}

    def grade(rollouts: Sequence[_Rollout]) -> Sequence[Any]:
        requests = [request_of[id(rollout)] for rollout in rollouts]
        return grade_many([(request.files, request.tests) for request in requests])

    for rollout, results in _together_or_alone([r for r, _ in waiting], grade, StopReason.SANDBOX_ERROR):
        rollout.record(sample_of[id(rollout)], rollout.env.complete(results), settings)


def _together_or_alone(
    rollouts: Sequence[_Rollout], call: Callable[[Sequence[_Rollout]], Sequence[T]], reason: StopReason
) -> list[tuple[_Rollout, T]]:
    """`call` on all rollouts at once; if that raises, on each alone, and those that raise again fail with `reason`."""
    if not rollouts:
        return []
    try:
        return list(zip(rollouts, call(rollouts), strict=True))
    except Exception:  # whatever a sampler or a sandbox raises is data of the rollouts concerned
        done = []
        for rollout in rollouts:
            try:
                done.append((rollout, call([rollout])[0]))
            except Exception as error:
                rollout.fail(reason, error)
        return done


@dataclass(kw_only=True)
class _Rollout:
    """One rollout on its way."""

    task: Task
    index: int
    seed: int
    env: CodingEnv
    trajectory: Trajectory = field(init=False)
    live: bool = True
    prompt: str = ""
    prompt_ids: list[int] = field(default_factory=list)
    history: list[EnvStep] = field(default_factory=list)
    tokens: int = 0  # sampled so far
    timeouts: int = 0  # turns after which some test ran into a time limit

    def __post_init__(self) -> None:
        name = f"{self.task.task_id}#{self.index}"
        self.trajectory = Trajectory(steps=[], outcome=0.0, trajectory_id=name, seed=self.seed)

    def write_prompt(self, agent: Agent, encode: Callable[[str], list[int]]) -> None:
        self.prompt = agent.prompt(self.task, self.history, self.env.files)
        self.prompt_ids = encode(self.prompt)

    def token_limit(self, settings: RolloutSettings) -> int:
        if settings.token_budget is None:
            return settings.max_new_tokens
        return min(settings.max_new_tokens, settings.token_budget - self.tokens)

    def record(self, sample: Sample, result: EnvStep, settings: RolloutSettings) -> None:
        """Keep the turn, and end the rollout where it is over."""
        self.tokens += len(sample.ids)
        self.history.append(result)
        step = result.to_step()
        step.prompt, step.prompt_ids = self.prompt, self.prompt_ids
        step.response_ids, step.token_offsets = list(sample.ids), list(sample.offsets)
        step.rollout_logprobs = sample.logprobs.tolist()
        self.trajectory.steps.append(step)
        self.timeouts += any(verdict == Verdict.TIMEOUT for verdict in result.verdicts.values())
        if result.stop_reason is not None:
            self.stop(result.stop_reason, result.error if result.stop_reason.failed else None)
            self.trajectory.outcome = result.outcome
        elif settings.token_budget is not None and self.tokens >= settings.token_budget:
            self.stop(StopReason.TOKEN_BUDGET)

    def stop(self, reason: StopReason, error: str | None = None) -> None:
        self.live = False
        self.trajectory.stop_reason = reason
        self.trajectory.error = error
        self.trajectory.meta = {"tokens": self.tokens, "timeouts": self.timeouts}

    def fail(self, reason: StopReason, error: Exception) -> None:
        self.stop(reason, f"{type(error).__name__}: {error}")
        self.trajectory.outcome = None
