"""What each row of a group was worth: one number, or one outcome per test.

A row is one step of a rollout that did not fail. Every sum over rows is exact (`math.fsum`) or a sum of whole numbers,
so that no result depends on the order of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from didpo.errors import UserError
from didpo.types import Step, Trajectory, TrajectoryGroup

LARGEST = 1e30  # of a reward: float32 holds the advantages


@dataclass(frozen=True, kw_only=True)
class StepTable:
    """The rows of a group: all steps of its valid rollouts, in order of (trajectory, step)."""

    where: list[tuple[int, int]]  # [N] trajectory and step index
    steps: list[Step]  # [N]

    @classmethod
    def of(cls, group: TrajectoryGroup) -> StepTable:
        where = [(g, s) for g, t in enumerate(group.trajectories) if not t.failed for s in range(len(t.steps))]
        return cls(where=where, steps=[group.trajectories[g].steps[s] for g, s in where])


def mean(values: np.ndarray) -> float:
    """Exactly rounded mean: the same bits in any order. 0 for no values."""
    return math.fsum(values.tolist()) / len(values) if len(values) else 0.0


def center(values: np.ndarray) -> np.ndarray:
    """values - mean, exactly 0 where all values are equal (the mean may round). [n] -> [n]"""
    if len(values) == 0 or bool((values == values[0]).all()):
        return np.zeros(len(values))
    return values - mean(values)


def std(values: np.ndarray, kind: str) -> float:
    """Standard deviation with divisor n - 1 ("sample") or n ("population"); 0 for a single value."""
    divisor = len(values) - (kind == "sample")
    if divisor <= 0:
        return 0.0
    return math.sqrt(math.fsum((center(values) ** 2).tolist()) / divisor)


def checked(value: float | None, what: str, group: TrajectoryGroup, trajectory: int, step: int | None) -> float | None:
    """`value`, unless it is not finite (or so large that its square is not): then `UserError` with the place."""
    if value is None or abs(value) < LARGEST:
        return value
    name = group.trajectories[trajectory].trajectory_id
    place = f"trajectory {trajectory}{f' ({name})' if name else ''}" + ("" if step is None else f", step {step}")
    raise UserError(
        f"{what} of task {group.task_id!r}, {place} is {value}: rewards and scores must be finite, below {LARGEST}"
    )


def check_group(group: TrajectoryGroup) -> None:
    """`UserError` for a reward, outcome or step score that is not finite, in a rollout that did not fail."""
    for g, trajectory in enumerate(group.trajectories):
        if trajectory.failed:
            continue
        checked(trajectory.outcome, "outcome", group, g, None)
        for s, step in enumerate(trajectory.steps):
            checked(step.reward, "reward", group, g, s)
            checked(step.step_score, "step score", group, g, s)


def episode_return(trajectory: Trajectory) -> float:
    """R(tau): the sum of the step rewards, not discounted; 0 for a rollout without steps."""
    return math.fsum(trajectory.rewards.tolist())


def return_to_go(rewards: np.ndarray, gamma: float) -> np.ndarray:
    """R_t = r_t + gamma * R_{t+1}. [S] -> [S]"""
    out = np.zeros(len(rewards))
    running = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        running = float(rewards[t]) + gamma * running
        out[t] = running
    return out


def row_returns(group: TrajectoryGroup, gamma: float) -> np.ndarray:
    """Return-to-go of each row. [N]"""
    parts = [return_to_go(t.rewards, gamma) for t in group.trajectories if not t.failed]
    return np.concatenate(parts) if parts else np.zeros(0)


def row_step_scores(table: StepTable) -> np.ndarray | None:
    """The verifier's score of the code right after each step, [N]; None unless every row has one."""
    scores = [step.step_score for step in table.steps]
    known = [s for s in scores if s is not None]
    return np.array(known, dtype=np.float64) if known and len(known) == len(scores) else None


def row_outcomes(group: TrajectoryGroup, table: StepTable) -> np.ndarray:
    """The rollout's outcome (its return, where none is recorded), repeated for each of its rows. [N]"""
    value = {
        g: episode_return(t) if t.outcome is None else float(t.outcome)
        for g, t in enumerate(group.trajectories)
        if not t.failed
    }
    return np.array([value[g] for g, _ in table.where], dtype=np.float64)


def row_tests(table: StepTable) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Test names (sorted), outcomes [N, J] as 0/1 and which of them are known [N, J] (a row may lack some or all)."""
    names = sorted(set().union(*(step.test_outcomes or () for step in table.steps)))
    column = {name: j for j, name in enumerate(names)}
    outcomes = np.zeros((len(table.steps), len(names)))
    known = np.zeros((len(table.steps), len(names)), dtype=bool)
    for i, step in enumerate(table.steps):
        if step.test_outcomes:
            columns = [column[name] for name in step.test_outcomes]
            outcomes[i, columns] = [1.0 if passed else 0.0 for passed in step.test_outcomes.values()]
            known[i, columns] = True
    return names, outcomes, known
