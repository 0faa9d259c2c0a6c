"""One table: an algorithm is a credit function, a loss, and what happens to groups before and after credit.

Adding an algorithm is adding an entry. Whatever the entry says can be overridden by the run's settings `credit.*` and
`loss.*`, which are checked here by name before anything else is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from didpo.credit import CREDIT
from didpo.credit.outcome import whiten_batch
from didpo.credit.settings import DiDPOSettings, resolve
from didpo.errors import unknown_name
from didpo.settings import LossOverrides
from didpo.types import GroupCredit, TrajectoryGroup


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """How rollouts become an update."""

    description: str
    source: str  # where the formula comes from
    credit: str  # name in `didpo.credit.CREDIT`
    credit_settings: Mapping[str, Any] = field(default_factory=dict)  # overrides of the credit function's defaults
    loss: Mapping[str, Any] = field(default_factory=dict)  # overrides of `losses.LossSettings`
    group_filter: Callable[[TrajectoryGroup], bool] | None = None  # False: the group is dropped and another one sampled
    shape_rewards: Callable[[TrajectoryGroup, int], TrajectoryGroup] | None = None  # (group, token limit) -> group
    whole_batch: Callable[[Sequence[GroupCredit]], list[GroupCredit]] | None = None  # after credit, over all groups
    needs_critic: bool = False


@dataclass(frozen=True, kw_only=True)
class ResolvedAlgorithm:
    """An algorithm with the run's overrides applied."""

    name: str
    algorithm: Algorithm
    credit_settings: DiDPOSettings
    loss: dict[str, Any]  # arguments of `losses.LossSettings`

    def keeps(self, group: TrajectoryGroup) -> bool:
        """False where the group is to be replaced by another."""
        return self.algorithm.group_filter is None or self.algorithm.group_filter(group)

    def credit(self, groups: Sequence[TrajectoryGroup], max_new_tokens: int) -> list[GroupCredit]:
        """Credit of every group of a batch."""
        shape = self.algorithm.shape_rewards
        shaped = groups if shape is None else [shape(group, max_new_tokens) for group in groups]
        credits = [CREDIT[self.algorithm.credit](group, settings=self.credit_settings) for group in shaped]
        return credits if self.algorithm.whole_batch is None else self.algorithm.whole_batch(credits)


def resolve_algorithm(name: str, credit: Mapping[str, Any], loss: LossOverrides) -> ResolvedAlgorithm:
    """The entry `name` with overrides. Raises UserError for an unknown algorithm or an unknown credit setting."""
    algorithm = get_algorithm(name)
    own = resolve(None, dict(algorithm.credit_settings))
    given = {f.name: value for f in dataclasses.fields(loss) if (value := getattr(loss, f.name)) is not None}
    return ResolvedAlgorithm(
        name=name,
        algorithm=algorithm,
        credit_settings=own.override(**credit),
        loss={**algorithm.loss, **given},
    )


def get_algorithm(name: str) -> Algorithm:
    """The entry `name`; raises UserError with the nearest name."""
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def returns_differ(group: TrajectoryGroup) -> bool:
    """DAPO's dynamic sampling (arXiv 2503.14476): keep groups that hold both solved and unsolved rollouts."""
    outcomes = {trajectory.outcome for trajectory in group.trajectories if not trajectory.failed}
    return len(outcomes) > 1


def soft_overlong(group: TrajectoryGroup, max_new_tokens: int, *, margin: float = 0.2) -> TrajectoryGroup:
    """DAPO's soft overlong punishment (arXiv 2503.14476), per response: within the last `margin` of the token limit the
    reward falls linearly by up to 1. A copy; the group itself keeps what it was paid."""
    room = margin * max_new_tokens
    trajectories = []
    for trajectory in group.trajectories:
        rewards = trajectory.rewards.tolist()
        steps = [
            dataclasses.replace(
                step, reward=reward - min(1.0, max(0.0, (step.n_tokens - max_new_tokens + room) / room))
            )
            for step, reward in zip(trajectory.steps, rewards, strict=True)
        ]
        trajectories.append(dataclasses.replace(trajectory, steps=steps))
    return dataclasses.replace(group, trajectories=trajectories)


ALGORITHMS: dict[str, Algorithm] = {
    "grpo": Algorithm(
        description="group-relative advantage of the whole rollout, PPO-clip, token mean",
        source="arXiv 2402.03300",
        credit="grpo",
    ),
    "dr_grpo": Algorithm(
        description="GRPO without the std and without length normalisation",
        source="arXiv 2503.20783",
        credit="dr_grpo",
        loss={"aggregation": "seq-mean-token-sum-norm", "norm_length": 64.0},
    ),
    "rloo": Algorithm(
        description="leave-one-out baseline",
        source="arXiv 2402.14740",
        credit="rloo",
    ),
    "reinforce_pp_baseline": Algorithm(
        description="group mean as the baseline, whitened over the batch",
        source="arXiv 2501.03262",
        credit="reinforce_pp_baseline",
        whole_batch=whiten_batch,
    ),
    "dapo": Algorithm(
        description="GRPO with asymmetric clipping, dynamic sampling and a soft overlong punishment",
        source="arXiv 2503.14476",
        credit="grpo",
        loss={"clip_low": 0.2, "clip_high": 0.28},
        group_filter=returns_differ,
        shape_rewards=soft_overlong,
    ),
    "gspo": Algorithm(
        description="GRPO with the ratio of the whole response (token form)",
        source="arXiv 2507.18071",
        credit="grpo",
        loss={"policy": "gspo", "clip_low": 3e-4, "clip_high": 4e-4, "aggregation": "seq-mean-token-mean"},
    ),
    "cispo": Algorithm(
        description="GRPO with clipped importance weights that stop no gradient",
        source="arXiv 2506.13585",
        credit="grpo",
        loss={"policy": "cispo", "clip_low": 1.0, "clip_high": 0.28},
    ),
    "gigpo": Algorithm(
        description="GRPO plus a step-level term over equal states before the action",
        source="arXiv 2505.10978",
        credit="gigpo",
    ),
    "didpo_published": Algorithm(
        description="Diff-in-Diff as published: return-to-go within anchors of similar edits",
        source="arXiv 2608.07147",
        credit="didpo_published",
        credit_settings={"preset": "published"},
    ),
    "didpo": Algorithm(
        description="Diff-in-Diff with test attribution: each edit is credited with the tests that its region decides",
        source="arXiv 2608.07147 and docs/credit.md",
        credit="didpo",
        credit_settings={"normalize": "mean"},  # both summands in units of reward, as published
    ),
}
