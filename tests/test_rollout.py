"""Rollouts with a scripted policy and the real sandbox: what is recorded, what ends one, who suffers from a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from didpo.agent import RepairAgent
from didpo.env import CodingEnv, EnvSettings
from didpo.rollout import RolloutSettings, Seconds, derive_seed, run_groups
from didpo.sampling import Sample, ScriptedSampler
from didpo.sandbox import Limits, Sandbox, open_sandbox
from didpo.tasks import load_tasks
from didpo.tasks.scripted import scripted_expert
from didpo.tokens import Tokenizer, train_tokenizer
from didpo.types import StopReason, Task, TrajectoryGroup

TASKS = load_tasks("repair", n=3, functions=2)
NOTHING = "<edit solution.py>\n<code>\nx = 1\n</code>\n</edit>"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox(require="process", workers=2, limits=Limits(cpu_s=1.0)) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([task.prompt + task.files["solution.py"] for task in TASKS], vocab_size=300)


class Policy:
    """Plays `reply(task, turn)`; remembers the prompts of each call."""

    def __init__(self, tokenizer: Tokenizer, reply: Callable[[Task, str], str]) -> None:
        self.tokenizer = tokenizer
        self.batches: list[list[str]] = []
        self.seeds: list[list[int]] = []
        self.scripted = ScriptedSampler(tokenizer, lambda prompt, call: reply(task_of(prompt), prompt))

    def generate(self, prompts: Sequence[Sequence[int]], **options: Any) -> list[Sample]:
        self.batches.append([self.tokenizer.decode(prompt) for prompt in prompts])
        self.seeds.append(list(options["seeds"]))
        return self.scripted.generate(prompts, **options)


def task_of(prompt: str) -> Task:
    return next(task for task in TASKS if prompt.startswith(task.prompt))


def roll(
    sandbox: Any, tokenizer: Tokenizer, policy: Any, tasks: Sequence[Task] = TASKS, **options: Any
) -> list[TrajectoryGroup]:
    environment = EnvSettings(**options.pop("env", {}))
    settings = RolloutSettings(**({"group_size": 2, "max_new_tokens": 400} | options))
    return run_groups(
        tasks,
        settings=settings,
        seed=5,
        make_env=lambda task: CodingEnv(task, sandbox, settings=environment),
        grade_many=sandbox.grade_many,
        agent=RepairAgent(),
        encode=tokenizer.encode,
        sampler=policy,
    )


def test_all_live_rollouts_share_one_call_and_solved_ones_leave(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    first, *_ = TASKS
    policy = Policy(tokenizer, lambda task, _: scripted_expert(task, task.files) if task is first else NOTHING)
    groups = roll(sandbox, tokenizer, policy)
    assert [len(batch) for batch in policy.batches] == [6, 4, 4]
    assert [g.task_id for g in groups] == [t.task_id for t in TASKS]
    assert [t.stop_reason for t in groups[0].trajectories] == [StopReason.SOLVED] * 2
    assert [t.stop_reason for t in groups[1].trajectories] == [StopReason.TURN_LIMIT] * 2
    assert [t.outcome for g in groups for t in g.trajectories] == [1, 1, 0, 0, 0, 0]
    flat = [seed for batch in policy.seeds for seed in batch]
    assert len(set(flat)) == len(flat)


def test_a_step_records_what_was_sampled(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    policy = Policy(tokenizer, lambda task, _: scripted_expert(task, task.files))
    step = roll(sandbox, tokenizer, policy, TASKS[:1])[0].trajectories[0].steps[0]
    assert step.response_ids is not None and step.token_offsets is not None and step.rollout_logprobs is not None
    assert step.response_ids[-1] == tokenizer.eos_ids[0] and step.token_offsets[-1][0] == step.token_offsets[-1][1]
    assert tokenizer.decode(step.response_ids) == step.response
    assert len(step.response_ids) == len(step.token_offsets) == len(step.rollout_logprobs) == step.n_tokens
    assert tokenizer.decode(step.prompt_ids or []) == step.prompt
    assert step.files_before == TASKS[0].files and step.files_after == TASKS[0].reference
    assert step.reward == 1.0 and step.step_score == 1.0 and all((step.test_outcomes or {}).values())


def test_rewards_and_scores_of_an_unsolved_rollout(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    policy = Policy(tokenizer, lambda task, prompt: NOTHING if task.files["solution.py"] in prompt else "no action")
    trajectory = roll(sandbox, tokenizer, policy, TASKS[:1])[0].trajectories[0]
    assert [s.action for s in trajectory.steps] == ["edit", "invalid", "invalid"]
    assert [s.reward for s in trajectory.steps] == pytest.approx([0.0, -0.01, -0.01])
    assert [s.step_score for s in trajectory.steps] == [0.0] * 3  # a turn that changes nothing keeps the score it had


@pytest.mark.parametrize("turn", [1, 2])
def test_a_cut_off_response_in_any_turn_ends_the_rollout(sandbox: Sandbox, tokenizer: Tokenizer, turn: int) -> None:
    calls = 0

    def reply(task: Task, prompt: str) -> str:
        nonlocal calls
        calls += 1
        return scripted_expert(task, task.files) + "x" * 500 if calls == turn else NOTHING

    policy = Policy(tokenizer, reply)
    trajectory = roll(sandbox, tokenizer, policy, TASKS[:1], group_size=1)[0].trajectories[0]
    assert trajectory.stop_reason is StopReason.LENGTH and len(trajectory.steps) == turn
    last = trajectory.steps[-1]
    assert last.finish_reason == "length" and last.files_after == last.files_before  # its action was not run
    assert trajectory.outcome == 0.0 and last.edits == () and len(last.response_ids or []) == 400
    assert len(policy.batches) == turn  # no further turn is generated


def test_a_token_budget_holds_over_turns(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    policy = Policy(tokenizer, lambda task, _: NOTHING)
    length = len(tokenizer.encode(NOTHING)) + 1
    exact = roll(sandbox, tokenizer, policy, TASKS[:1], token_budget=length)[0].trajectories[0]
    assert exact.stop_reason is StopReason.TOKEN_BUDGET and exact.meta["tokens"] == length
    cut = roll(sandbox, tokenizer, policy, TASKS[:1], token_budget=length + 5)[0].trajectories[0]
    assert cut.stop_reason is StopReason.LENGTH and cut.meta["tokens"] == length + 5


def test_a_deadline_stops_before_the_next_turn(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    policy = Policy(tokenizer, lambda task, _: NOTHING)
    groups = roll(sandbox, tokenizer, policy, TASKS[:1], deadline_s=0.0)
    assert {t.stop_reason for g in groups for t in g.trajectories} == {StopReason.DEADLINE}


class BadPolicy(Policy):
    """A sampler that cannot serve one task."""

    def generate(self, prompts: Sequence[Sequence[int]], **options: Any) -> list[Sample]:
        if any(task_of(self.tokenizer.decode(prompt)) is TASKS[1] for prompt in prompts):
            raise RuntimeError("out of memory")
        return super().generate(prompts, **options)


def test_a_sampler_failure_marks_only_the_rollouts_concerned(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    groups = roll(sandbox, tokenizer, BadPolicy(tokenizer, lambda task, _: scripted_expert(task, task.files)))
    assert [t.stop_reason for t in groups[1].trajectories] == [StopReason.MODEL_ERROR] * 2
    assert all(t.failed and t.outcome is None and "out of memory" in (t.error or "") for t in groups[1].trajectories)
    assert {t.stop_reason for g in (groups[0], groups[2]) for t in g.trajectories} == {StopReason.SOLVED}


class BadSandbox:
    """The real sandbox, but it refuses the programs of one task."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def grade_many(self, requests: Sequence[Any]) -> Any:
        if any(tests == TASKS[2].tests for _, tests in requests):
            raise OSError("no space left")
        return self.sandbox.grade_many(requests)


def test_a_sandbox_failure_marks_only_the_rollouts_concerned(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    policy = Policy(tokenizer, lambda task, _: scripted_expert(task, task.files))
    groups = roll(BadSandbox(sandbox), tokenizer, policy)
    assert [t.stop_reason for t in groups[2].trajectories] == [StopReason.SANDBOX_ERROR] * 2
    assert "no space left" in (groups[2].trajectories[0].error or "")
    assert {t.stop_reason for g in groups[:2] for t in g.trajectories} == {StopReason.SOLVED}


def test_time_is_measured_by_part(sandbox: Sandbox, tokenizer: Tokenizer) -> None:
    seconds = Seconds()
    with seconds.measure("sample"), pytest.raises(KeyError), seconds.measure("grade"):
        raise KeyError
    assert seconds.keys() == {"sample", "grade"} and seconds["sample"] >= seconds["grade"] >= 0


def test_seeds_depend_on_every_part() -> None:
    seeds = [derive_seed(*parts) for parts in ((1, "a", 0), (1, "a", 1), (2, "a", 0), (1, "b", 0), ("1a", 0))]
    assert len(set(seeds)) == 5 and all(0 <= seed < 2**63 for seed in seeds)
    assert seeds[0] == 443251806977331066  # the same on every machine
