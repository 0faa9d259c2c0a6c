"""The table of algorithms: complete, checked by name, and what it does to groups."""

from __future__ import annotations

import numpy as np
import pytest

from didpo.algorithms import ALGORITHMS, resolve_algorithm, returns_differ, soft_overlong
from didpo.credit import CREDIT
from didpo.credit.settings import DiDPOSettings
from didpo.errors import UserError
from didpo.losses import LossSettings
from didpo.settings import LossOverrides
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup

NONE = LossOverrides()


def group(task: str, *outcomes: float | None) -> TrajectoryGroup:
    """One-step rollouts of five tokens; None: the sandbox could not be started."""
    return TrajectoryGroup(
        task_id=task,
        trajectories=[
            Trajectory(steps=[], outcome=None, stop_reason=StopReason.SANDBOX_ERROR)
            if outcome is None
            else Trajectory(steps=[Step(response="abcde", reward=outcome)], outcome=outcome)
            for outcome in outcomes
        ],
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_entry_resolves_to_a_credit_function_and_a_loss(name: str) -> None:
    algorithm = resolve_algorithm(name, {}, NONE)
    assert algorithm.algorithm.credit in CREDIT
    LossSettings(**algorithm.loss)
    (credit,) = algorithm.credit([group("a", 1.0, 0.0, 0.0, None)], 48)
    assert credit.assigned == [True, True, True, False]
    assert credit.advantages[0][0].shape == (5,) and (credit.advantages[0][0] > 0).all()
    assert (credit.advantages[1][0] < 0).all()


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(UserError, match="did you mean 'didpo'"):
        resolve_algorithm("dipo", {}, NONE)
    with pytest.raises(UserError, match="did you mean 'gamma'"):
        resolve_algorithm("grpo", {"gama": 1.0}, NONE)


def test_overrides_win_over_the_entry() -> None:
    algorithm = resolve_algorithm("dapo", {"normalize": "mean"}, LossOverrides(clip_high=0.4, kl_coef=0.1))
    assert algorithm.credit_settings == DiDPOSettings(normalize="mean")
    assert algorithm.loss == {"clip_low": 0.2, "clip_high": 0.4, "kl_coef": 0.1}


def test_the_published_form_keeps_its_preset_under_overrides() -> None:
    algorithm = resolve_algorithm("didpo_published", {"lam": 1.2}, NONE)
    assert algorithm.credit_settings == DiDPOSettings.published(lam=1.2)


def test_uneven_groups_with_failures_by_hand() -> None:
    """Mean-centred advantages of ragged groups; failed rollouts are in no mean; a lone valid one gets 0."""
    groups = [group("a", 1.0, 0.0, 0.5), group("b", 0.0, 1.0, None), group("c", 1.0, None)]
    credits = resolve_algorithm("dr_grpo", {}, NONE).credit(groups, 48)
    values = [[float(row[0][0]) if row else None for row in credit.advantages] for credit in credits]
    assert values == [[0.5, -0.5, 0.0], [-0.5, 0.5, None], [0.0, None]]
    assert credits[1].metrics["failed/sandbox_error"] == 1.0
    # the order of rows is no matter
    turned = TrajectoryGroup(task_id="a", trajectories=groups[0].trajectories[::-1])
    (back,) = resolve_algorithm("dr_grpo", {}, NONE).credit([turned], 48)
    assert [float(row[0][0]) for row in back.advantages] == [0.0, -0.5, 0.5]


def test_rloo_by_hand_and_a_group_of_one() -> None:
    algorithm = resolve_algorithm("rloo", {}, NONE)
    (credit,) = algorithm.credit([group("a", 3.0, 1.0, 0.0, 0.0)], 48)
    assert [float(row[0][0]) for row in credit.advantages] == pytest.approx([8 / 3, 0.0, -4 / 3, -4 / 3])
    (lone,) = algorithm.credit([group("a", 1.0)], 48)
    assert (lone.advantages[0][0] == 0).all()


def test_whitening_covers_the_whole_batch() -> None:
    groups = [group("a", 1.0, 0.0), group("b", 3.0, 0.0, None)]
    credits = resolve_algorithm("reinforce_pp_baseline", {}, NONE).credit(groups, 48)
    values = np.concatenate(
        [a for c in credits for row, kept in zip(c.advantages, c.assigned, strict=True) if kept for a in row]
    )
    assert values.mean() == pytest.approx(0.0, abs=1e-6) and values.std(ddof=1) == pytest.approx(1.0, abs=1e-5)


def test_dynamic_sampling_keeps_groups_with_both_outcomes() -> None:
    assert returns_differ(group("a", 1.0, 0.0))
    assert not returns_differ(group("a", 1.0, 1.0)) and not returns_differ(group("a", 0.0, 0.0))
    assert not returns_differ(group("a", 1.0, None))  # a failure is no outcome
    assert not returns_differ(group("a", None))


@pytest.mark.parametrize(("length", "penalty"), [(70, 0.0), (80, 0.0), (90, 0.5), (100, 1.0)])
def test_soft_overlong_by_hand(length: int, penalty: float) -> None:
    given = TrajectoryGroup(
        task_id="a", trajectories=[Trajectory(steps=[Step(response="x" * length, reward=1.0)], outcome=1.0)]
    )
    shaped = soft_overlong(given, 100, margin=0.2)
    assert shaped.trajectories[0].steps[0].reward == pytest.approx(1.0 - penalty)
    assert given.trajectories[0].steps[0].reward == 1.0
