"""Episode advantages by hand. Numbers are worked out in the comments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from groups import firsts, plain

from didpo.credit import dr_grpo, grpo, reinforce_pp, reinforce_pp_baseline, rloo, whiten_batch
from didpo.credit.outcome import token_returns, whiten
from didpo.credit.settings import DiDPOSettings
from didpo.errors import UserError
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup


def test_grpo_by_hand() -> None:
    # mean 1/3; deviations 2/3, -1/3, -1/3; sum of squares 2/3;
    # sample std sqrt(1/3) = 0.57735, population std sqrt(2/9) = 0.4714
    group = plain([1, 0, 0])
    assert firsts(grpo(group, normalize="mean")) == pytest.approx([0.6667, -0.3333, -0.3333], abs=1e-4)
    assert firsts(grpo(group)) == pytest.approx([1.1547, -0.5774, -0.5774], abs=1e-4)
    assert firsts(grpo(group, std="population")) == pytest.approx([1.4142, -0.7071, -0.7071], abs=1e-4)
    assert firsts(dr_grpo(group)) == pytest.approx([0.6667, -0.3333, -0.3333], abs=1e-4)


def test_epsilon_is_added_to_the_std() -> None:
    exact = (2 / 3) / (math.sqrt(1 / 3) + 0.5)
    assert firsts(grpo(plain([1, 0, 0]), epsilon=0.5))[0] == pytest.approx(exact, abs=1e-6)


def test_rloo_by_hand() -> None:
    # mean 1; G / (G - 1) = 4/3: 2 * 4/3, 0, -4/3, -4/3
    credit = rloo(plain([3, 1, 0, 0]))
    assert firsts(credit) == pytest.approx([2.6667, 0.0, -1.3333, -1.3333], abs=1e-4)
    assert sum(firsts(credit)) == pytest.approx(0, abs=1e-6)
    assert firsts(rloo(plain([0, 3, 0, 1]))) == pytest.approx([-1.3333, 2.6667, -1.3333, 0.0], abs=1e-4)


@pytest.mark.parametrize("function", [grpo, dr_grpo, rloo, reinforce_pp_baseline])
def test_a_group_of_one_is_zero(function) -> None:
    credit = function(plain([1.0]))
    assert firsts(credit) == [0.0]
    assert credit.assigned == [True] and credit.metrics["no_signal"] == 1


def test_a_group_of_one_may_keep_its_return() -> None:
    assert firsts(grpo(plain([0.7]), group_of_one="raw")) == pytest.approx([0.7])
    assert firsts(rloo(plain([0.7]), group_of_one="raw")) == pytest.approx([0.7])


@pytest.mark.parametrize("function", [grpo, dr_grpo, rloo, reinforce_pp_baseline])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e9, 0.0, -0.7])
def test_equal_returns_give_exactly_zero(function, value: float) -> None:
    credit = function(plain([value] * 7))
    assert firsts(credit) == [0.0] * 7
    assert credit.metrics["no_signal"] == 1


def test_uneven_groups_with_failures() -> None:
    def group(*outcomes: float | None) -> TrajectoryGroup:
        return TrajectoryGroup(
            task_id="x",
            trajectories=[
                Trajectory(
                    steps=[Step(response="ab")],
                    outcome=o,
                    stop_reason=StopReason.FINISHED if o is not None else StopReason.SANDBOX_ERROR,
                )
                for o in outcomes
            ],
        )

    a = grpo(group(1.0, 0.0, 0.5), normalize="mean")
    b = grpo(group(0.0, 1.0, None), normalize="mean")
    c = grpo(group(1.0, None), normalize="mean")
    assert firsts(a) == [0.5, -0.5, 0.0] and a.assigned == [True, True, True]
    assert firsts(b) == [-0.5, 0.5, 0.0] and b.assigned == [True, True, False]
    assert firsts(c) == [0.0, 0.0] and c.assigned == [True, False]
    assert b.metrics["failed/sandbox_error"] == 1 and "failed/sandbox_error" not in a.metrics


def test_a_failed_rollout_may_hold_anything() -> None:
    group = plain([1.0, float("nan"), 0.0], failed=(1,))
    assert firsts(grpo(group, normalize="mean")) == [0.5, 0.0, -0.5]


def test_rollouts_or_rows_in_the_mean() -> None:
    # returns 1 (one step) and 0 (three steps): mean 1/2 over rollouts, 1/4 over rows
    group = TrajectoryGroup(
        task_id="t",
        trajectories=[
            Trajectory(steps=[Step(response="a", reward=1.0)]),
            Trajectory(steps=[Step(response="a", reward=0.0) for _ in range(3)]),
        ],
    )
    assert firsts(grpo(group, normalize="mean")) == [0.5, -0.5, -0.5, -0.5]
    assert firsts(grpo(group, normalize="mean", episode_baseline="rows")) == [0.75, -0.25, -0.25, -0.25]
    # sample std of 1, 0, 0, 0: squares 9/16 + 3/16 = 3/4, / 3 = 1/4, root 1/2
    assert firsts(grpo(group, episode_baseline="rows"))[0] == pytest.approx(1.5, abs=1e-5)


def test_reinforce_pp_returns_over_model_tokens() -> None:
    # two steps of 2 and 3 tokens, rewards 1 and 2, gamma 0.5 per token:
    # tokens from the end: 2, 1, 0.5 | 1 + 0.25, 0.625
    out = token_returns(np.array([1.0, 2.0]), [2, 3], 0.5)
    assert out[0].tolist() == [0.625, 1.25] and out[1].tolist() == [0.5, 1.0, 2.0]
    # a step without tokens: its reward goes to the token before it
    out = token_returns(np.array([0.0, 2.0]), [2, 0], 0.5)
    assert out[0].tolist() == [1.0, 2.0] and len(out[1]) == 0
    group = TrajectoryGroup(
        task_id="t",
        trajectories=[Trajectory(steps=[Step(response="ab", reward=1.0), Step(response="abc", reward=2.0)])],
    )
    assert [a.tolist() for a in reinforce_pp(group).advantages[0]] == [[3, 3], [2, 2, 2]]


def test_whitening_by_hand() -> None:
    # 1, 2, 3: mean 2, unbiased variance 1: -1, 0, 1 (times 1 / sqrt(1 + 1e-8))
    assert whiten(np.array([1.0, 2.0, 3.0])) == pytest.approx([-1, 0, 1], abs=1e-7)
    assert whiten(np.array([0.1] * 5)).tolist() == [0] * 5
    assert whiten(np.array([4.0])).tolist() == [0]


def test_whitening_runs_over_the_batch_and_leaves_failures_out() -> None:
    # tokens: 1 x3 (first group), 0 x3, and a failed rollout: mean 1/2, unbiased variance 6 * 1/4 / 5 = 0.3
    one, two = reinforce_pp(plain([1.0, 5.0], failed=(1,))), reinforce_pp(plain([0.0]))
    a, b = whiten_batch([one, two])
    assert a.advantages[0][0] == pytest.approx([0.5 / math.sqrt(0.3)] * 3, abs=1e-5)
    assert b.advantages[0][0] == pytest.approx([-0.5 / math.sqrt(0.3)] * 3, abs=1e-5)
    assert a.advantages[1][0].tolist() == [0, 0, 0] and a.assigned == [True, False]
    assert a.parts["episode"][0][0].tobytes() == a.advantages[0][0].tobytes()
    assert whiten_batch([]) == []


def test_not_finite_is_refused_by_place() -> None:
    group = plain([0.0, float("inf")])
    group.trajectories[1].trajectory_id = "r1"
    with pytest.raises(UserError, match=r"reward of task 't', trajectory 1 \(r1\), step 0 is inf"):
        grpo(group)
    group = plain([0.0, 1.0])
    group.trajectories[0].outcome = float("nan")
    with pytest.raises(UserError, match="outcome of task 't', trajectory 0 is nan"):
        rloo(group)


def test_empty_things_work() -> None:
    for function in (grpo, dr_grpo, rloo, reinforce_pp, reinforce_pp_baseline):
        assert function(TrajectoryGroup(task_id="t", trajectories=[])).advantages == []
        group = TrajectoryGroup(
            task_id="t",
            trajectories=[Trajectory(steps=[]), Trajectory(steps=[Step(response="", reward=1.0)])],
        )
        credit = function(group)
        assert [len(row) for row in credit.advantages] == [0, 1] and len(credit.advantages[1][0]) == 0


def test_unknown_and_wrong_settings() -> None:
    with pytest.raises(UserError, match="did you mean 'normalize'"):
        grpo(plain([1, 0]), normalise="mean")
    with pytest.raises(UserError, match="did you mean 'mean_std'"):
        grpo(plain([1, 0]), normalize="meanstd")
    with pytest.raises(UserError, match="gamma must lie between"):
        DiDPOSettings(gamma=1.5)
    with pytest.raises(UserError, match="epsilon must be a number"):
        DiDPOSettings(epsilon="big")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="lam must be finite"):
        DiDPOSettings(lam=float("nan"))
    with pytest.raises(UserError, match="did you mean 'published'"):
        grpo(plain([1, 0]), preset="publishd")
    with pytest.raises(UserError, match="normalize"):
        dr_grpo(plain([1, 0]), normalize="mean_std")
    assert DiDPOSettings.published().scorer == "within"
