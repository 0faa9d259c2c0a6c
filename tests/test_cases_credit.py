"""Faults that users of similar projects met, part 2: advantages, groups, failed rollouts (cases C11 to C14).

One test per expectation, named after the case. Inputs and right results are this project's own.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from didpo.config import override
from didpo.credit import CREDIT, didpo, didpo_published, gigpo, grpo, rloo
from didpo.errors import UserError
from didpo.importers.common import groups_of
from didpo.settings import PRESETS
from didpo.trainer import measure, training_rows
from didpo.types import GroupCredit, Step, StopReason, Trajectory, TrajectoryGroup

# ---------------------------------------------------------------- C11 nothing repeats: all methods are GRPO


def singles(count: int, turns: int = 1) -> TrajectoryGroup:
    """Rollouts with states and codes of their own; reward 1 for the first, 0 for the others."""
    texts = ["aa1 = 1", "bb2 = [2]", "cc3 = {3}", "import os", "del dd4", "while ee5: pass", "ff6()", "assert gg7, 7"]
    trajectories = []
    for i in range(count):
        steps = []
        for s in range(turns):
            text, state = texts[i * turns + s], f"state_{i}_{s} = {i!r}\n"
            response = f"<edit m.py>\n<code>\n{text}\n</code>\n</edit>"
            last = float(i == 0 and s == turns - 1)
            steps.append(Step(response=response, files_before={"m.py": state}, reward=last, step_score=last))
        trajectories.append(Trajectory(steps=steps, outcome=float(i == 0), trajectory_id=str(i)))
    return TrajectoryGroup(task_id="t", trajectories=trajectories)


def flat(credit: GroupCredit) -> np.ndarray:
    return np.concatenate([a for row in credit.advantages for a in row])


@pytest.mark.parametrize("normalize", ["mean", "mean_std"])
@pytest.mark.parametrize(("count", "turns"), [(3, 1), (2, 1), (4, 2), (8, 1)])
def test_c11_1_without_repeats_all_are_grpo(normalize: str, count: int, turns: int) -> None:
    """GiGPO's and DiDPO's advantages are GRPO's, element by element."""
    group = singles(count, turns)
    want = flat(grpo(group, normalize=normalize))
    for scorer in ("auto", "region", "between", "within"):
        np.testing.assert_allclose(flat(didpo(group, normalize=normalize, scorer=scorer)), want, atol=1e-6)
    np.testing.assert_allclose(flat(gigpo(group, normalize=normalize)), want, atol=1e-6)
    published = didpo_published(group, normalize=normalize, episode_baseline="rollouts")
    np.testing.assert_allclose(flat(published), want, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"normalize": "mean"}, [0.6667, -0.3333, -0.3333]),
        ({"normalize": "mean_std"}, [1.1547, -0.5774, -0.5774]),
        ({"normalize": "mean_std", "std": "population"}, [1.4142, -0.7071, -0.7071]),
    ],
)
def test_c11_2_values_of_grpo(settings: dict[str, Any], values: list[float]) -> None:
    """The three usual conventions by hand; which one is used is a setting with a stated default."""
    credit = grpo(singles(3), **settings)
    assert [row[0][0] for row in credit.advantages] == pytest.approx(values, abs=1e-4)
    assert "std" in (grpo.__doc__ or "")


def test_c11_3_the_statistics_say_that_nothing_was_grouped() -> None:
    """No usable local group, all rows alone: said in the metrics, and in words by DiDPO."""
    for credit in (gigpo(singles(3)), didpo(singles(3)), didpo_published(singles(3))):
        assert credit.metrics["usable_groups"] == 0 and credit.metrics["singletons"] == 3
        assert credit.metrics["singleton_share"] == 1 and credit.anchors == []
    assert any("nothing repeats" in note for note in didpo(singles(3)).notes)


# ---------------------------------------------------------------- C13 RLOO, and a group of one


def outcomes(*values: float | None, task: str = "t") -> TrajectoryGroup:
    """One-step rollouts; None: the sandbox could not be started."""
    return TrajectoryGroup(task_id=task, trajectories=[outcome(v, f"{task}{i}") for i, v in enumerate(values)])


def outcome(value: float | None, name: str) -> Trajectory:
    step = Step(response="ab", prompt_ids=[1], response_ids=[2, 3], rollout_logprobs=[-1.0, -1.0], action="finish")
    reason = StopReason.FINISHED if value is not None else StopReason.SANDBOX_ERROR
    return Trajectory(steps=[step], outcome=value, stop_reason=reason, trajectory_id=name)


def firsts(credit: GroupCredit) -> list[float]:
    return [float(row[0][0]) for row in credit.advantages]


def test_c13_1_rloo_by_hand() -> None:
    """Each return against the mean of the others; the sum is 0; no std divides it."""
    values = firsts(rloo(outcomes(3, 1, 0, 0)))
    assert values == pytest.approx([2.6667, 0.0, -1.3333, -1.3333], abs=1e-4)
    assert sum(values) == pytest.approx(0, abs=1e-6)
    assert firsts(rloo(outcomes(30, 10, 0, 0))) == pytest.approx([10 * v for v in values], rel=1e-6)


@pytest.mark.parametrize("returns", [(3, 1, 0, 0), (1, 0), (0.5, 0.25, -1, 7, 2, 2, 0)])
def test_c13_2_rloo_is_the_scaled_deviation(returns: tuple[float, ...]) -> None:
    """k / (k - 1) times (return - mean), and the definition: return - mean of the others."""
    k, r = len(returns), np.array(returns, dtype=float)
    values = firsts(rloo(outcomes(*returns)))
    assert values == pytest.approx((k / (k - 1) * (r - r.mean())).tolist(), abs=1e-6)
    assert values == pytest.approx([r[i] - np.delete(r, i).mean() for i in range(k)], abs=1e-6)


def test_c13_3_order_and_batch_mates_do_not_matter() -> None:
    """Whatever the order of rows, bit for bit the same; a failed mate or another task changes nothing."""
    want = dict(zip((3, 1, 0.5, 0), firsts(rloo(outcomes(3, 1, 0.5, 0))), strict=True))
    for order in itertools.permutations(want):
        assert firsts(rloo(outcomes(*order))) == [want[r] for r in order]
    assert firsts(rloo(outcomes(3, None, 1, 0.5, 0)))[0] == want[3]


@pytest.mark.parametrize("name", sorted(CREDIT))
def test_c13_4_a_group_of_one_is_the_same_everywhere(name: str) -> None:
    """A lone rollout has nothing to be compared with: 0 in every group-relative function, never NaN."""
    for group in (outcomes(1), outcomes(None, 1), outcomes(1, None)):
        credit = CREDIT[name](group)
        assert np.isfinite(flat(credit)).all()
        if name != "reinforce_pp":  # no group in its formula: its baseline is the batch
            assert not flat(credit).any() and credit.metrics["no_signal"] == 1


def test_c13_4_a_run_with_one_rollout_per_task_is_refused_at_the_start() -> None:
    """Where no learning is possible the run says so before it starts."""
    with pytest.raises(UserError, match="group_size is at least 2"):
        override(PRESETS["smoke"], {"rl": {"group_size": 1}})


# ---------------------------------------------------------------- C14 uneven, interleaved groups with failures

ROWS = [("a", 1.0), ("b", 0.0), ("a", 0.0), ("b", 1.0), ("a", 0.5), ("b", None), ("c", 1.0), ("c", None)]
WANT = [0.5, -0.5, -0.5, 0.5, 0.0, None, 0.0, None]  # None: masked


def by_row(rows: list[tuple[str, float | None]], order: list[int]) -> tuple[dict[int, float | None], list, list]:
    """Mean-centred advantage of each row (None where masked), its groups, their credit. Rows arrive in `order`."""
    groups = groups_of((rows[i][0], outcome(rows[i][1], str(i))) for i in order)
    credits = [grpo(group, normalize="mean") for group in groups]
    values = {
        int(t.trajectory_id): float(c.advantages[g][0][0]) if c.assigned[g] else None
        for group, c in zip(groups, credits, strict=True)
        for g, t in enumerate(group.trajectories)
    }
    return values, groups, credits


def test_c14_1_advantages_follow_the_task() -> None:
    """Interleaved rows are compared within their task, whatever their place and their own id."""
    values, _, _ = by_row(ROWS, list(range(8)))
    assert [values[i] for i in range(8)] == WANT


def test_c14_2_failures_move_no_mean_and_have_no_loss() -> None:
    """Rows of failed rollouts are no training rows, and the others get what they get without them."""
    values, groups, credits = by_row(ROWS, list(range(8)))
    assert len(training_rows(groups, credits, "penalise")) == 6
    kept = [i for i, (_, r) in enumerate(ROWS) if r is not None]
    without, _, _ = by_row(ROWS, kept)
    assert without == {i: values[i] for i in kept}
    lost = TrajectoryGroup(task_id="d", trajectories=[outcome(None, "x")] * 3)
    assert training_rows([lost], [grpo(lost)], "penalise") == [] and np.isfinite(flat(grpo(lost))).all()


def test_c14_3_shuffled_rows_permute_the_result() -> None:
    """The order in which rows arrive decides nothing."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        values, _, _ = by_row(ROWS, rng.permutation(8).tolist())
        assert [values[i] for i in range(8)] == WANT


def test_c14_4_failures_are_counted_by_kind() -> None:
    """Group metrics and the metrics of the step name how many failed, and of what."""
    _, groups, credits = by_row(ROWS, list(range(8)))
    assert [c.metrics.get("failed/sandbox_error", 0) for c in credits] == [0, 1, 1]
    groups[0].trajectories[0].stop_reason = StopReason.MODEL_ERROR
    row = measure(groups, [grpo(group) for group in groups])
    assert (row["failed_rollouts"], row["stop_sandbox_error"], row["stop_model_error"]) == (3, 2, 1)
    assert row["success"] == pytest.approx(2 / 5)  # of a 0, a 0.5, b 0, b 1, c 1
