"""Each scorer by hand."""

from __future__ import annotations

import numpy as np
import pytest

from didpo.credit import scorers


def test_within() -> None:
    # mean of 1, 0, 0.5 is 0.5
    assert scorers.within(np.array([1, 0, 0.5])).tolist() == [0.5, -0.5, 0]
    # population std sqrt((0.25 + 0.25 + 0) / 3) = 0.40825
    out = scorers.within(np.array([1, 0, 0.5]), normalize="mean_std")
    assert out == pytest.approx([0.5 / 0.408249, -0.5 / 0.408249, 0], abs=1e-4)
    assert scorers.within(np.array([0.1] * 3), normalize="mean_std").tolist() == [0, 0, 0]
    assert scorers.within(np.array([])).tolist() == []


def test_between() -> None:
    # members 1, 1 (mean 1), others 0, 0.5, 1, 0.5 (mean 0.5): contrast 0.5, share 4/6, shrink 2/3 -> 2/9
    members, others = np.array([1.0, 1.0]), np.array([0, 0.5, 1, 0.5])
    assert scorers.contrast(members, others) == 0.5
    assert scorers.between(members, others) == pytest.approx(2 / 9)
    # no shrinkage: contrast * share = mean of the members - mean of all = 1 - 4/6
    assert scorers.between(members, others, kappa=0) == pytest.approx(1 / 3)
    assert scorers.region(members, others, kappa=2) == pytest.approx(1 / 6)  # shrink 2/4
    assert scorers.between(members, np.array([])) == 0 and scorers.contrast(members, np.array([])) is None
    assert scorers.between(np.array([0.1, 0.1]), np.array([0.1] * 5)) == 0


def test_step() -> None:
    assert scorers.step(np.array([1, 0, 0.5])).tolist() == [0.5, -0.5, 0]
    assert scorers.step(np.array([0.1] * 3)).tolist() == [0, 0, 0]


def known(outcomes: np.ndarray) -> np.ndarray:
    return np.ones_like(outcomes, dtype=bool)


def test_a_region_that_decides_a_test() -> None:
    # four rows, contents A A B B. Test 0 = 1 1 0 0 follows the content; test 1 = 1 0 1 0 does not.
    # test 0: SS_total 4 * 1/4 = 1, SS_within 0 -> w = 1.
    # test 1: SS_within 1/2 + 1/2 = 1; 1 - (1 / 2) / (1 / 3) = -1/2 -> clipped to 0.
    y = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=float)
    advantages, weights = scorers.tests(y, known(y), np.array([0, 0, 1, 1]))
    assert weights.tolist() == [1, 0]
    assert advantages.tolist() == [0.5, 0.5, -0.5, -0.5]


def test_a_region_that_decides_a_test_in_part() -> None:
    # contents A A A B B B, outcomes 1 1 0 0 0 0: total s = 2, SS_total 2 - 4/6 = 4/3;
    # SS_within: A 2 - 4/3 = 2/3, B 0. w = 1 - (2/3 / 4) / (4/3 / 5) = 1 - (1/6) / (4/15) = 1 - 15/24 = 3/8.
    # A_i = w (y - 1/3) / max(1, 3/8): 3/8 * 2/3 = 1/4 for the two that pass, -1/8 for the others.
    y = np.array([[1], [1], [0], [0], [0], [0]], dtype=float)
    advantages, weights = scorers.tests(y, known(y), np.array([5, 5, 5, 2, 2, 2]))
    assert weights == pytest.approx([3 / 8])
    assert advantages == pytest.approx([0.25, 0.25, -0.125, -0.125, -0.125, -0.125])


def test_weights_above_one_in_sum_are_shared() -> None:
    # two tests both decided: w = 1, 1, sum 2. Row 0: (1/2 + 1/2) / 2
    y = np.array([[1, 1], [1, 1], [0, 0], [0, 0]], dtype=float)
    advantages, weights = scorers.tests(y, known(y), np.array([0, 0, 1, 1]))
    assert weights.tolist() == [1, 1] and advantages.tolist() == [0.5, 0.5, -0.5, -0.5]


def test_nothing_to_learn_from() -> None:
    y = np.array([[1], [0], [1]], dtype=float)
    assert scorers.decided_tests(y, known(y), np.array([0, 1, 2])).tolist() == [0]  # N = m
    assert scorers.decided_tests(y, known(y), np.array([4, 4, 4])).tolist() == [0]  # one content
    same = np.ones((3, 1))
    assert scorers.decided_tests(same, known(same), np.array([0, 0, 1])).tolist() == [0]  # nothing varies
    assert scorers.decided_tests(np.zeros((0, 2)), np.zeros((0, 2), bool), np.zeros(0, int)).tolist() == [0, 0]


def test_unknown_outcomes_are_left_out() -> None:
    # the fifth row does not know the test: the result is that of the first four
    y = np.array([[1], [1], [0], [0], [1]], dtype=float)
    mask = np.array([[True]] * 4 + [[False]])
    advantages, weights = scorers.tests(y, mask, np.array([0, 0, 1, 1, 1]))
    assert weights.tolist() == [1] and advantages.tolist() == [0.5, 0.5, -0.5, -0.5, 0]


def slow_tests(y: np.ndarray, content: np.ndarray) -> tuple[list[float], list[float]]:
    """The formula as written, with loops."""
    n, tests = y.shape
    weights = []
    for j in range(tests):
        column = y[:, j]
        total = sum((v - column.mean()) ** 2 for v in column)
        inside = 0.0
        for c in set(content.tolist()):
            group = column[content == c]
            inside += sum((v - group.mean()) ** 2 for v in group)
        m = len(set(content.tolist()))
        if n == m or len(set(column.tolist())) == 1:
            weights.append(0.0)
        else:
            weights.append(min(1.0, max(0.0, 1 - (inside / (n - m)) / (total / (n - 1)))))
    advantages = [
        sum(w * (y[i, j] - y[:, j].mean()) for j, w in enumerate(weights)) / max(1.0, sum(weights)) for i in range(n)
    ]
    return advantages, weights


def test_attribution_equals_the_slow_reference() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, tests, m = int(rng.integers(1, 12)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
        content = rng.integers(0, m, n)
        y = (rng.random((n, tests)) < 0.2 + 0.6 * (content[:, None] % 2)).astype(float)
        advantages, weights = scorers.tests(y, known(y), content)
        slow_advantages, slow_weights = slow_tests(y, content)
        assert weights == pytest.approx(slow_weights, abs=1e-12)
        assert advantages == pytest.approx(slow_advantages, abs=1e-12)
        order = rng.permutation(n)
        again, same = scorers.tests(y[order], known(y), content[order])
        assert again.tobytes() == advantages[order].tobytes() and same.tobytes() == weights.tobytes()
