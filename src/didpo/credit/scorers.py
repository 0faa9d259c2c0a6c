"""What a local unit of code earned: small pure functions over the signal of its rows.

`members` are the signals of the rows that hold a fragment, `others` those of the rows it is compared with. Sums are
exact, so the order of rows never matters; equal signals give exactly 0.
"""

from __future__ import annotations

import numpy as np

from didpo.credit.signals import center, mean, std


def within(
    members: np.ndarray, *, normalize: str = "mean", std_kind: str = "population", epsilon: float = 1e-6
) -> np.ndarray:
    """Published form: y_i - mean of the anchor's rows (/ (std + epsilon) for "mean_std"). [n] -> [n]"""
    deviation = center(members)
    if normalize == "mean" or not deviation.any():
        return deviation
    return deviation / (std(members, std_kind) + epsilon)


def contrast(members: np.ndarray, others: np.ndarray) -> float | None:
    """Mean of the members minus mean of the others; None where either side is empty."""
    if len(members) == 0 or len(others) == 0:
        return None
    return mean(members) - mean(others)


def between(members: np.ndarray, others: np.ndarray, *, kappa: float = 1.0) -> float:
    """What holding the fragment is worth: contrast * share of the others * n / (n + kappa), n = number of members.

    contrast * share = mean of the members - mean of both together. 0 where nobody is without it.
    """
    difference = contrast(members, others)
    if difference is None:
        return 0.0
    n, m = len(members), len(others)
    return difference * (m / (n + m)) * (n / (n + kappa))


def region(members: np.ndarray, alternatives: np.ndarray, *, kappa: float = 1.0) -> float:
    """`between` against the alternatives alone: the rows that edited the same region and do not hold the fragment."""
    return between(members, alternatives, kappa=kappa)


def step(signal: np.ndarray) -> np.ndarray:
    """Control without any diff: y_i - mean over the task's rows, meant for the whole response. [N] -> [N]"""
    return center(signal)


def decided_tests(outcomes: np.ndarray, known: np.ndarray, content: np.ndarray) -> np.ndarray:
    """Which tests does a region decide? Adjusted share of the variance explained by the region's content.

    w_j = clip(1 - (SS_within / (N - m)) / (SS_total / (N - 1)), 0, 1); 0 where N = m or nothing varies.
    outcomes [N, J] 0/1, known [N, J], content [N] whole numbers (equal number = equal text) -> w [J]. N and m count the
    rows that know test j. Sums of 0/1 are whole numbers and the terms of the contents are sorted before they are added,
    hence the same bits in any order of rows.
    """
    if len(content) == 0:
        return np.zeros(outcomes.shape[1])
    order = np.argsort(content, kind="stable")
    begins = np.ones(len(content), dtype=bool)
    np.not_equal(content[order][1:], content[order][:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    seen = np.where(known, 1.0, 0.0)[order]
    passed = (outcomes * known)[order]
    n_c, s_c = np.add.reduceat(seen, starts), np.add.reduceat(passed, starts)  # [m, J] rows, passes per content
    n, s, m = n_c.sum(axis=0), s_c.sum(axis=0), (n_c > 0).sum(axis=0)  # [J]
    spread_c = s_c - s_c**2 / np.maximum(n_c, 1)  # sum of squares of 0/1 values around their mean: s - s^2 / n
    ss_within = np.sort(spread_c, axis=0).sum(axis=0)
    ss_total = s - s**2 / np.maximum(n, 1)
    usable = (n > m) & (ss_total > 0)
    explained = 1 - (ss_within / np.maximum(n - m, 1)) * (n - 1) / np.where(usable, ss_total, 1)
    return np.where(usable & (m > 1), np.clip(explained, 0, 1), 0.0)


def tests(outcomes: np.ndarray, known: np.ndarray, content: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Test attribution: each row's own outcomes on the tests that the region decides.

    A_i = sum_j w_j (y_ij - mean_j) / max(1, sum_j w_j), over the tests that row i knows. Shapes as in `decided_tests`;
    returns (A [N], w [J]).
    """
    weights = decided_tests(outcomes, known, content)
    n = known.sum(axis=0)
    means = np.where(known, outcomes, 0.0).sum(axis=0) / np.maximum(n, 1)
    deviation = np.where(known, outcomes - means, 0.0)  # [N, J]
    total = max(1.0, float(weights.sum()))
    return (deviation * weights).sum(axis=1) / total, weights
