"""The audit by hand, and that it orders scorers on a group whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from groups import whole_file

from didpo.credit import didpo, grpo
from didpo.credit.audit import Line, audit, changed_lines, compare, correlation
from didpo.types import Trajectory, TrajectoryGroup

RIGHT = {"f": "    return a + b\n", "g": "    return a * b\n"}
WRONG = {"f": "    return a - b\n", "g": "    return a / b\n"}


def repair(pairs: list[tuple[bool, bool]]) -> TrajectoryGroup:
    """Rollouts that write a file of two functions, each right or wrong; a test per function."""
    trajectories = []
    for f, g in pairs:
        code = "def f(a, b):\n" + (RIGHT if f else WRONG)["f"] + "\n\ndef g(a, b):\n" + (RIGHT if g else WRONG)["g"]
        step = whole_file(code, reward=float(f and g), step_score=(f + g) / 2, test_outcomes={"f": f, "g": g})
        trajectories.append(Trajectory(steps=[step], outcome=float(f and g)))
    return TrajectoryGroup(task_id="t", trajectories=trajectories)


def truth(group: TrajectoryGroup, line: Line) -> float | None:
    if line.text.startswith("def"):
        return None
    right = [
        line.region in t.steps[0].test_outcomes and t.steps[0].test_outcomes[line.region] for t in group.trajectories
    ]
    return float(right[line.trajectory]) - float(np.mean(right))


def test_by_hand() -> None:
    # local 1, -1, 0, 0 against 1, -1, 1, -1: r = 2 / sqrt(2 * 4); signs right for two of four; best scale 1:
    # squares 0, 0, 1, 1
    out = compare(np.array([1.0, -1, 0, 0]), np.zeros(4), np.array([1.0, -1, 1, -1]))
    assert out.correlation == pytest.approx(2 / np.sqrt(8)) and out.sign_accuracy == 0.5
    assert out.variance == 0.5 and out.error == 0.5 and out.total_correlation == 0
    assert correlation(np.zeros(0), np.zeros(0)) == 0 and compare(*[np.zeros(0)] * 3).n_lines == 0


def test_changed_lines_name_their_function() -> None:
    lines = changed_lines(repair([(True, False)]))
    assert [(line.region, line.text) for line in lines] == [
        ("f", "def f(a, b):"),
        ("f", "    return a + b"),
        ("g", "def g(a, b):"),
        ("g", "    return a / b"),
    ]


def test_it_orders_the_scorers() -> None:
    rng = np.random.default_rng(3)
    groups = [repair([(bool(a), bool(b)) for a, b in rng.random((8, 2)) < 0.5]) for _ in range(12)]
    by_tests = audit(groups, lambda g: didpo(g), truth)
    by_region = audit(groups, lambda g: didpo(g, scorer="region"), truth)
    published = audit(groups, lambda g: didpo(g, preset="published", equality="exact"), truth)
    assert by_tests.n_lines == 2 * 8 * 12
    assert by_tests.correlation > 0.95 > by_region.correlation > published.correlation
    assert by_tests.sign_accuracy > 0.9
    assert audit(groups, lambda g: grpo(g), truth).total_correlation < by_tests.total_correlation
    assert audit([], lambda g: grpo(g), truth).n_lines == 0
