"""What a run works with: its tasks, sandbox, environment, policy and sampler, put together from the settings once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from didpo.agent import Agent, ChatAgent, RepairAgent
from didpo.algorithms import ResolvedAlgorithm, resolve_algorithm
from didpo.coldstart import prepare_cold_start
from didpo.env import CodingEnv
from didpo.errors import UserError
from didpo.evaluate import task_rows
from didpo.losses import LossSettings
from didpo.model import load_model
from didpo.progress import Progress
from didpo.rollout import RolloutSettings, Seconds, derive_seed, run_groups
from didpo.sampling import TorchSampler
from didpo.sandbox import Limits, Sandbox, Verdict, open_sandbox
from didpo.settings import RunSettings
from didpo.tasks import load_tasks
from didpo.tokens import Tokenizer, load_tokenizer
from didpo.types import Task, TrajectoryGroup


@dataclass(kw_only=True)
class Session:
    """Everything of a run but the optimiser. `model` is the policy that is being trained."""

    settings: RunSettings
    algorithm: ResolvedAlgorithm
    loss: LossSettings
    train_tasks: list[Task]
    heldout_tasks: list[Task]
    tracking_tasks: list[Task]
    sandbox: Sandbox
    agent: Agent
    encode: Callable[[str], list[int]]
    model: Any
    tokenizer: Tokenizer
    device: torch.device

    def sample(
        self,
        tasks: Sequence[Task],
        group_size: int,
        *,
        seed: int,
        temperature: float | None = None,
        mode: Literal["batch", "fork"] = "batch",
        seconds: Seconds | None = None,
    ) -> list[TrajectoryGroup]:
        """Groups of rollouts of the current policy, at the training temperature unless told otherwise.

        `mode` is the sandbox's: in "batch" the cases of a program share a process, in "fork" each has its own.

        Raises UserError where every single one failed: then nothing can be learnt or measured, and going on hides it.
        """
        sampling = self.settings.sampling
        groups = run_groups(
            tasks,
            settings=RolloutSettings(
                group_size=group_size,
                max_new_tokens=sampling.max_new_tokens,
                temperature=sampling.temperature if temperature is None else temperature,
                token_budget=sampling.token_budget,
                deadline_s=sampling.deadline_s,
            ),
            seed=seed,
            make_env=self.make_env,
            grade_many=partial(self.sandbox.grade_many, mode=mode),
            agent=self.agent,
            sampler=TorchSampler(self.model, self.tokenizer),
            encode=self.encode,
            seconds=seconds,
        )
        rollouts = [t for group in groups for t in group.trajectories]
        if rollouts and all(t.failed for t in rollouts):
            raise UserError(
                f"all {len(rollouts)} rollouts failed outside the policy, the first with: {rollouts[0].error}; "
                "see `didpo doctor`, then continue with --resume"
            )
        return groups

    def make_env(self, task: Task) -> CodingEnv:
        return CodingEnv(task, self.sandbox, settings=self.settings.env)

    def evaluate(self, tasks: Sequence[Task], *, mode: Literal["batch", "fork"] = "fork") -> list[dict[str, Any]]:
        """Rows for `evaluate.evaluate_rows`. The seeds are always the same: evaluations differ by the policy alone.

        By default every case runs in a process of its own, so that no state leaks from one to the next.
        """
        settings = self.settings.evaluation
        rows: list[dict[str, Any]] = []
        seed = derive_seed(self.settings.seed, "evaluation")
        for start in range(0, len(tasks), 64):  # bounds the memory of one batch
            part = tasks[start : start + 64]
            groups = self.sample(part, settings.samples, seed=seed, temperature=settings.temperature, mode=mode)
            rows += task_rows(groups)
        return rows

    def audit_grades(self, groups: Sequence[TrajectoryGroup], *, seed: int, n: int = 2) -> float:
        """Share of the verdicts of `n` random turns that change when every case has a process of its own.

        Above 0, programs that share a process between their cases see each other's state.
        """
        tasks = {task.task_id: task for task in self.train_tasks}
        graded = [
            (group.task_id, step)
            for group in groups
            for t in group.trajectories
            for step in t.steps
            if step.test_outcomes
        ]
        if not graded:
            return 0.0
        rng = np.random.default_rng(seed)
        picked = [graded[i] for i in rng.choice(len(graded), size=min(n, len(graded)), replace=False)]
        again = self.sandbox.grade_many(
            [(step.files_after or {}, tasks[task_id].tests) for task_id, step in picked], mode="fork"
        )
        differ = [
            results[name].passed != passed
            for (_, step), results in zip(picked, again, strict=True)
            for name, passed in (step.test_outcomes or {}).items()
            if results[name].verdict is not Verdict.SANDBOX_ERROR
        ]
        return sum(differ) / len(differ) if differ else 0.0


@contextmanager
def open_session(
    settings: RunSettings, *, cache: Path, progress: Progress, log: Callable[[dict[str, Any]], None] = lambda row: None
) -> Iterator[Session]:
    """Check all settings, then make tasks, start the sandbox and bring up the cold-started policy.

    `cache` is the folder of cold starts; `log` takes the metrics rows of the phases "tasks" and "sft".
    """
    algorithm = resolve_algorithm(settings.algorithm, settings.credit, settings.loss)
    loss = LossSettings(**algorithm.loss)
    torch.set_num_threads(settings.threads)
    began = time.monotonic()
    progress.phase("tasks", 0)
    train, heldout = make_tasks(settings)
    log({"phase": "tasks", "step": 0, "seconds": time.monotonic() - began})
    folder = prepare_cold_start(settings, train, cache=cache, progress=progress, log=log)
    tokenizer = load_tokenizer(folder)
    device = torch.device(pick_device(settings.model.device))
    model = load_model(folder, dtype=settings.model.dtype, device=str(device))
    agent, encode = make_agent(settings, tokenizer)
    limits = Limits(cpu_s=settings.sandbox.cpu_s, memory_mb=settings.sandbox.memory_mb)
    with open_sandbox(require=settings.sandbox.require, workers=settings.sandbox.workers, limits=limits) as sandbox:
        yield Session(
            settings=settings,
            algorithm=algorithm,
            loss=loss,
            train_tasks=train,
            heldout_tasks=heldout,
            tracking_tasks=train[: settings.tasks.tracking],
            sandbox=sandbox,
            agent=agent,
            encode=encode,
            model=model,
            tokenizer=tokenizer,
            device=device,
        )


def make_tasks(settings: RunSettings) -> tuple[list[Task], list[Task]]:
    """Training and held-out tasks of the run."""
    tasks = settings.tasks
    train = load_tasks(tasks.name, split="train", n=tasks.train, seed=settings.seed, **tasks.options)
    heldout = load_tasks(tasks.name, split="heldout", n=tasks.heldout, seed=settings.seed, **tasks.options)
    return train, heldout


def make_agent(settings: RunSettings, tokenizer: Tokenizer) -> tuple[Agent, Callable[[str], list[int]]]:
    """The agent that writes prompts, and how its prompts become token ids.

    Raises UserError where chat prompts are asked of a tokenizer without a chat template.
    """
    chat = settings.agent == "chat" or (
        settings.agent == "auto" and settings.model.path and not settings.cold_start.steps
    )
    if not chat:
        return RepairAgent(), tokenizer.encode
    if not tokenizer.hf.chat_template:
        raise UserError(
            f"the tokenizer of {settings.model.path or 'the tiny model'} has no chat template; set agent compact"
        )

    def render(messages: list[dict[str, str]]) -> str:
        return str(tokenizer.hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    agent = ChatAgent(render, commands=settings.env.feedback != "blind")
    return agent, partial(tokenizer.encode, special=True)


def pick_device(name: str) -> str:
    """ "auto" is the first accelerator, or the CPU."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"
