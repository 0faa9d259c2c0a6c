"""GiGPO by hand: the state is the one before the action."""

from __future__ import annotations

import numpy as np
import pytest
from groups import firsts, plain

from didpo.credit import gigpo, grpo
from didpo.credit.gigpo import state_groups
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup


def rollout(*steps: tuple[str, float], failed: bool = False) -> Trajectory:
    return Trajectory(
        steps=[Step(response="ab", files_before={"f.py": state}, reward=r) for state, r in steps],
        stop_reason=StopReason.SANDBOX_ERROR if failed else StopReason.FINISHED,
    )


def test_by_hand() -> None:
    # gamma 0.5. Returns-to-go: a: s0 0 + 0.5 * 1 = 0.5, s1 1; b: s0 0, s2 0; c: s0 1.
    # Group s0: 0.5, 0, 1, mean 0.5 -> 0, -0.5, 0.5. s1 and s2 are met once: 0.
    # Episode (mean): R = 1, 0, 1, mean 2/3 -> 1/3, -2/3, 1/3.
    group = TrajectoryGroup(
        task_id="t",
        trajectories=[rollout(("s0", 0), ("s1", 1)), rollout(("s0", 0), ("s2", 0)), rollout(("s0", 1))],
    )
    credit = gigpo(group, normalize="mean", gamma=0.5)
    assert [a[0] for row in credit.parts["step"] for a in row] == pytest.approx([0, 0, -0.5, 0, 0.5])
    assert firsts(credit) == pytest.approx([1 / 3, 1 / 3, -2 / 3 - 0.5, -2 / 3, 1 / 3 + 0.5])
    assert credit.metrics["usable_groups"] == 1 and credit.metrics["singletons"] == 2
    assert credit.metrics["state_groups"] == 3
    half = gigpo(group, normalize="mean", gamma=0.5, step_weight=2.0)
    assert [a[0] for row in half.parts["step"] for a in row] == pytest.approx([0, 0, -1, 0, 1])


def test_mean_std_holds_for_the_step_term_too() -> None:
    # group s0: 1, 0: sample std sqrt(1/2): +-0.7071
    group = TrajectoryGroup(task_id="t", trajectories=[rollout(("s0", 1)), rollout(("s0", 0))])
    assert [a[0][0] for a in gigpo(group).parts["step"]] == pytest.approx([0.7071, -0.7071], abs=1e-4)


def test_rows_count_and_failures_do_not() -> None:
    # state s: rollout a twice (1.0 then 1.0 with gamma 1: returns 2 and 1), b once (0); the failed one not. mean 1
    group = TrajectoryGroup(
        task_id="t", trajectories=[rollout(("s", 1), ("s", 1)), rollout(("s", 0)), rollout(("s", 9), failed=True)]
    )
    credit = gigpo(group, normalize="mean", gamma=1.0)
    assert [a[0] for row in credit.parts["step"] for a in row] == [1, 0, -1, 0]
    assert credit.assigned == [True, True, False]


def test_nothing_repeats_is_grpo() -> None:
    group = TrajectoryGroup(task_id="t", trajectories=[rollout(("s0", 1)), rollout(("s1", 0)), rollout(("s2", 0))])
    credit = gigpo(group)
    assert firsts(credit) == firsts(grpo(group))
    assert credit.metrics["usable_groups"] == 0 and credit.metrics["singletons"] == 3


def test_states() -> None:
    assert state_groups(["b", "a", "b", None]).tolist() == [1, 0, 1, -1]
    base = "x" * 100
    similar = state_groups([base, "x" * 97 + "yyy", "z" * 100], 0.95)
    assert similar[0] == similar[1] != similar[2]
    # no chain: c is near b but not near the representative a
    a, b, c = "a" * 100, "a" * 96 + "b" * 4, "a" * 92 + "b" * 8
    assert len(np.unique(state_groups([a, b, c], 0.95))) == 2
    assert state_groups([c, a, b], 0.95).tolist() == [state_groups([a, b, c], 0.95).tolist()[i] for i in (2, 0, 1)]


def test_a_prompt_serves_where_no_files_are_recorded_and_nothing_is_said() -> None:
    group = plain([1, 0])
    credit = gigpo(group)
    assert firsts(credit) == firsts(grpo(group)) and "2 rows record no state" in credit.notes[0]
    for t in group.trajectories:
        t.steps[0].prompt = "same"
    assert gigpo(group, normalize="mean").parts["step"][0][0][0] == 0.5


def test_the_state_after_does_not_matter() -> None:
    group = TrajectoryGroup(task_id="t", trajectories=[rollout(("s0", 1)), rollout(("s0", 0))])
    for i, t in enumerate(group.trajectories):
        t.steps[0].files_after = {"f.py": str(i)}
    assert gigpo(group, normalize="mean").parts["step"][0][0][0] == 0.5


def test_states_that_are_exactly_as_similar_as_asked_are_joined() -> None:
    """The texts aaaab and aaaac share 4 of 5 characters: 2 * 4 / 10 = 0.8."""
    assert state_groups(["aaaab", "aaaac"], 0.8).tolist() == [0, 0]
    assert state_groups(["aaaab", "aaaac"], 0.81).tolist() == [0, 1]
