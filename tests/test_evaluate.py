"""pass@k, intervals, and failures kept apart. Values worked out by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didpo.evaluate import bootstrap, evaluate_groups, mean_pass_at_k, pass_at_k, task_rows, wilson
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup


def rollout(outcome: float, *, turns: int = 1, reason: StopReason = StopReason.FINISHED) -> Trajectory:
    steps = [Step(response="x", step_score=outcome) for _ in range(turns)]
    return Trajectory(steps=steps, outcome=outcome, stop_reason=reason)


def group(task: str, *trajectories: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(task_id=task, trajectories=list(trajectories))


def test_pass_at_k_by_hand() -> None:
    assert [round(pass_at_k(5, 2, k), 12) for k in (1, 2, 3, 5)] == [0.4, 0.7, 0.9, 1.0]
    with pytest.raises(ValueError, match="at least 5 samples"):
        pass_at_k(2, 0, 5)
    assert mean_pass_at_k([(4, 1), (4, 0)], 1) == (0.125, 2)
    assert mean_pass_at_k([(4, 1), (4, 0)], 4) == (0.5, 2)
    assert mean_pass_at_k([(1, 1), (1, 0), (1, 0), (1, 0)], 1) == (0.25, 4)
    assert mean_pass_at_k([(1, 1), (1, 0), (1, 0), (1, 0)], 10) is None


@given(st.integers(1, 7), st.data())
def test_pass_at_k_counts_the_subsets(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations(range(n), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(any(i < c for i in s) for s in subsets) / len(subsets))


@given(st.integers(1, 300), st.data())
def test_wilson_holds_the_share_and_stays_in_range(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    low, high = wilson(c, n)
    assert 0 <= low <= c / n <= high <= 1 and low < high


def test_wilson_by_hand() -> None:
    low, high = wilson(5, 10, z=2.0)  # (0.5 + 0.2) / 1.4 -+ 2 sqrt(0.025 + 0.01) / 1.4
    assert (low, high) == pytest.approx((0.5 - 0.2672612, 0.5 + 0.2672612), abs=1e-6)


def test_failures_are_no_samples() -> None:
    failed = rollout(0.0, reason=StopReason.SANDBOX_ERROR)
    found = evaluate_groups([group("a", rollout(1.0)), group("b", rollout(0.0, turns=3)), group("c", failed)])
    assert (found.success, found.n, found.tasks, found.samples) == (0.5, 2, 3, 2)
    assert found.errors == {"sandbox_error": 1}
    assert found.mean_turns == 2.0 and found.first_turn == 0.5 and found.stop_reasons == {"finished": 2}
    assert "on 2 tasks of 3" in found.line() and "1 rollouts failed" in found.line()
    assert task_rows([group("c", failed)])[0]["errors"] == ["sandbox_error"]


def test_nothing_valid_gives_no_number() -> None:
    found = evaluate_groups([group("c", rollout(0.0, reason=StopReason.MODEL_ERROR))])
    assert found.success is None and found.low is None and found.n == 0 and found.pass_at_k == {}


def test_several_samples_are_not_independent_tasks() -> None:
    groups = [group("a", *[rollout(1.0)] * 4), group("b", *[rollout(0.0)] * 3, rollout(1.0))]
    found = evaluate_groups(groups, ks=(1, 4, 9))
    assert found.success == pytest.approx(0.625)
    assert found.pass_at_k == {1: pytest.approx(0.625), 4: 1.0}
    assert (found.low, found.high) == bootstrap([1.0, 0.25])
    assert found.summary()["pass_at_k"]["4"] == 1.0
