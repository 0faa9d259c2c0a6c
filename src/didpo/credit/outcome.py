"""Episode advantages: one number per rollout, from the outcomes of its group (GRPO and its relatives).

All functions take a `TrajectoryGroup` and give a `GroupCredit` whose arrays are float32 [T] per step. A failed rollout
is not assigned and enters no mean. A group of one gives 0 (`group_of_one="raw"` gives its return, as verl does); a
group whose returns are all equal gives exactly 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from didpo.credit.settings import DiDPOSettings, resolve
from didpo.credit.signals import center, check_group, episode_return, mean, std
from didpo.errors import UserError
from didpo.types import GroupCredit, TrajectoryGroup

Arrays = list[list[np.ndarray]]


# ---------------------------------------------------------------- pure formulas


def relative(
    returns: np.ndarray,  # [G]
    *,
    normalize: str = "mean_std",
    std_kind: str = "sample",
    epsilon: float = 1e-6,
    counts: np.ndarray | None = None,  # [G] how often each return counts; None: once
    group_of_one: str = "zero",
) -> np.ndarray:
    """Group-relative advantages [G]: R - mean, for "mean_std" divided by (std + epsilon). arXiv 2402.03300.

    Equal returns give exactly 0: they are compared before anything is divided.
    """
    if len(returns) == 1:
        return returns.copy() if group_of_one == "raw" else np.zeros(1)
    if len(returns) == 0 or bool((returns == returns[0]).all()):
        return np.zeros(len(returns))
    sample = returns if counts is None else np.repeat(returns, counts)
    if len(sample) == 0:
        return np.zeros(len(returns))
    deviation = returns - (sample[0] if bool((sample == sample[0]).all()) else mean(sample))
    return deviation if normalize == "mean" else deviation / (std(sample, std_kind) + epsilon)


def leave_one_out(returns: np.ndarray, *, group_of_one: str = "zero") -> np.ndarray:
    """RLOO: return minus the mean of the other rollouts = G / (G - 1) * (R - mean). [G] -> [G]. arXiv 2402.14740."""
    n = len(returns)
    if n == 1:
        return returns.copy() if group_of_one == "raw" else np.zeros(1)
    return center(returns) * (n / (n - 1)) if n else np.zeros(0)


def token_returns(rewards: np.ndarray, lengths: Sequence[int], gamma: float) -> list[np.ndarray]:
    """Returns over model tokens alone, float32 [T] per step: each step's reward stands on its last token.

    G_t = r_t + gamma * G_{t+1} from token to token across the whole rollout (tool output is no token here). The reward
    of a step without tokens goes to the token before it. rewards [S], lengths [S].
    """
    out: list[np.ndarray] = []
    following = 0.0  # gamma-discounted return of the token that comes next, as seen from the token before it
    for reward, length in zip(rewards[::-1].tolist(), list(lengths)[::-1], strict=True):
        last = reward + following
        values = last * gamma ** np.arange(length - 1, -1, -1, dtype=np.float64)
        out.append(values.astype(np.float32))
        following = gamma * float(values[0]) if length else last
    return out[::-1]


def whiten(values: np.ndarray, epsilon: float = 1e-8) -> np.ndarray:
    """(x - mean) / sqrt(unbiased variance + epsilon), exactly 0 where all are equal. [n] -> float64 [n]."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 or bool((values == values[0]).all()):
        return np.zeros(len(values))
    deviation = values - np.sort(values).sum() / len(values)  # sorted: the same bits in any order
    variance = np.sort(deviation**2).sum() / (len(values) - 1)
    return deviation / np.sqrt(variance + epsilon)


# ---------------------------------------------------------------- from numbers to token arrays


def spread(group: TrajectoryGroup, values: np.ndarray) -> Arrays:
    """One value per trajectory, on all tokens of all its steps: float32 [T] per step."""
    return [
        [np.full(step.n_tokens, value, dtype=np.float32) for step in trajectory.steps]
        for trajectory, value in zip(group.trajectories, values.tolist(), strict=True)
    ]


def group_returns(group: TrajectoryGroup) -> tuple[np.ndarray, np.ndarray]:
    """Returns [G] (0 for failed rollouts) and the mask of valid rollouts [G]. Checks that all numbers are finite."""
    check_group(group)
    valid = np.array([not t.failed for t in group.trajectories], dtype=bool)
    returns = np.array([0.0 if t.failed else episode_return(t) for t in group.trajectories], dtype=np.float64)
    return returns, valid


def base_metrics(group: TrajectoryGroup, returns: np.ndarray, valid: np.ndarray) -> dict[str, float]:
    """Sizes of the group, failures by kind ("failed/sandbox_error"), and whether it holds any signal."""
    kept = returns[valid]
    metrics = {
        "rollouts": float(len(valid)),
        "valid_rollouts": float(valid.sum()),
        "rows": float(sum(len(t.steps) for t in group.trajectories if not t.failed)),
        "tokens": float(sum(s.n_tokens for t in group.trajectories if not t.failed for s in t.steps)),
        "no_signal": float(len(kept) == 0 or bool((kept == kept[0]).all())),
    }
    for kind, count in sorted(Counter(t.stop_reason.value for t in group.trajectories if t.failed).items()):
        metrics[f"failed/{kind}"] = float(count)
    return metrics


def episode_values(group: TrajectoryGroup, settings: DiDPOSettings) -> np.ndarray:
    """A^E of each rollout before `episode_weight`, float64 [G]; 0 where it failed."""
    returns, valid = group_returns(group)
    counts = None
    if settings.episode_baseline == "rows":
        counts = np.array([len(t.steps) for t in group.trajectories], dtype=np.int64)[valid]
    values = np.zeros(len(returns))
    values[valid] = relative(
        returns[valid],
        normalize=settings.normalize,
        std_kind=settings.std,
        epsilon=settings.epsilon,
        counts=counts,
        group_of_one=settings.group_of_one,
    )
    return values


def episode_credit(group: TrajectoryGroup, algorithm: str, values: np.ndarray, weight: float = 1.0) -> GroupCredit:
    """A credit that consists of the episode term alone. `+ 0.0` turns a negative zero into a plain one."""
    returns, valid = group_returns(group)
    episode = spread(group, values * weight + 0.0)
    return GroupCredit(
        algorithm=algorithm,
        advantages=[[a.copy() for a in row] for row in episode],
        parts={"episode": episode},
        assigned=valid.tolist(),
        metrics=base_metrics(group, returns, valid),
    )


# ---------------------------------------------------------------- the credit functions


def grpo(group: TrajectoryGroup, *, settings: DiDPOSettings | None = None, **overrides: Any) -> GroupCredit:
    """GRPO: (R - mean) / (std + 1e-6) over the rollouts of the task; std with divisor n - 1 unless `std="population"`.

    `normalize="mean"` leaves the division out. arXiv 2402.03300.
    """
    cfg = resolve(settings, overrides)
    return episode_credit(group, "grpo", episode_values(group, cfg), cfg.episode_weight)


def dr_grpo(group: TrajectoryGroup, *, settings: DiDPOSettings | None = None, **overrides: Any) -> GroupCredit:
    """Dr.GRPO: R - mean, never divided by a std. arXiv 2503.20783."""
    if "normalize" in overrides:
        raise UserError("dr_grpo is GRPO without the std: it takes no setting 'normalize'; use grpo")
    cfg = replace(resolve(settings, overrides), normalize="mean")
    return episode_credit(group, "dr_grpo", episode_values(group, cfg), cfg.episode_weight)


def rloo(group: TrajectoryGroup, *, settings: DiDPOSettings | None = None, **overrides: Any) -> GroupCredit:
    """RLOO: G / (G - 1) * (R - mean). arXiv 2402.14740."""
    cfg = resolve(settings, overrides)
    returns, valid = group_returns(group)
    values = np.zeros(len(returns))
    values[valid] = leave_one_out(returns[valid], group_of_one=cfg.group_of_one)
    return episode_credit(group, "rloo", values, cfg.episode_weight)


def reinforce_pp(group: TrajectoryGroup, *, settings: DiDPOSettings | None = None, **overrides: Any) -> GroupCredit:
    """REINFORCE++: returns over model tokens, before the whitening over the batch (`whiten_batch`). 2501.03262."""
    cfg = resolve(settings, overrides)
    returns, valid = group_returns(group)
    episode = [
        [np.zeros(s.n_tokens, dtype=np.float32) for s in t.steps]
        if t.failed
        else token_returns(t.rewards, [s.n_tokens for s in t.steps], cfg.token_gamma)
        for t in group.trajectories
    ]
    return GroupCredit(
        algorithm="reinforce_pp",
        advantages=[[a.copy() for a in row] for row in episode],
        parts={"episode": episode},
        assigned=valid.tolist(),
        metrics=base_metrics(group, returns, valid),
    )


def reinforce_pp_baseline(
    group: TrajectoryGroup, *, settings: DiDPOSettings | None = None, **overrides: Any
) -> GroupCredit:
    """REINFORCE++-baseline: R - mean of the group, before the whitening over the batch (`whiten_batch`)."""
    cfg = replace(resolve(settings, overrides), normalize="mean")
    return episode_credit(group, "reinforce_pp_baseline", episode_values(group, cfg))


def whiten_batch(credits: Sequence[GroupCredit], epsilon: float = 1e-8) -> list[GroupCredit]:
    """The second half of REINFORCE++: whitens the advantages of a whole batch over the tokens of assigned rollouts.

    Unbiased variance + 1e-8 (verl's convention). Returns new credits; their only part is the whitened "episode".
    """
    kept = [a for c in credits for ok, row in zip(c.assigned, c.advantages, strict=True) if ok for a in row]
    flat = whiten(np.concatenate(kept) if kept else np.zeros(0), epsilon).astype(np.float32)
    out, at = [], 0
    for credit in credits:
        arrays: Arrays = []
        for ok, row in zip(credit.assigned, credit.advantages, strict=True):
            new = []
            for a in row:
                new.append(flat[at : at + len(a)].copy() if ok else np.zeros_like(a))
                at += len(a) if ok else 0
            arrays.append(new)
        episode = [[a.copy() for a in row] for row in arrays]
        out.append(replace(credit, advantages=arrays, parts={"episode": episode}))
    return out
