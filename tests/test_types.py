"""The records that users build by hand: what counts as the reward, and what a rollout's end means."""

from __future__ import annotations

import pytest

from didpo import Step, StopReason, Trajectory


@pytest.mark.parametrize(
    ("rewards", "outcome", "expected"),
    [
        ([None, None], 1.0, [0.0, 1.0]),  # no rewards: the outcome is the last step's
        ([0.0, 0.0], 1.0, [0.0, 1.0]),
        ([0.1, 1.0], 1.0, [0.1, 1.0]),  # the last reward includes the terminal one: nothing is added
        ([0.1, None], 0.0, [0.1, 0.0]),
        ([0.25], None, [0.25]),
        ([], 1.0, []),
    ],
)
def test_rewards_of_a_trajectory(rewards: list[float | None], outcome: float | None, expected: list[float]) -> None:
    steps = [Step(response="x", reward=reward) for reward in rewards]
    assert Trajectory(steps=steps, outcome=outcome).rewards.tolist() == expected


def test_stop_reasons_may_be_given_as_text() -> None:
    assert Trajectory(steps=[], stop_reason="sandbox_error").failed  # type: ignore[arg-type]
    assert Trajectory(steps=[], stop_reason="solved").stop_reason is StopReason.SOLVED  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no_such_reason"):
        Trajectory(steps=[], stop_reason="no_such_reason")  # type: ignore[arg-type]


def test_tokens_are_offsets_or_characters() -> None:
    assert Step(response="abc").n_tokens == 3
    assert Step(response="abc", token_offsets=[(0, 3), (3, 3)]).n_tokens == 2
