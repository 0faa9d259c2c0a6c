"""Laws of credit on random groups."""

from __future__ import annotations

import numpy as np
import pytest
from groups import plain, rows, whole_file
from hypothesis import given, settings
from hypothesis import strategies as st

from didpo.credit import CREDIT, didpo, gigpo, grpo
from didpo.credit.io import dumps, loads
from didpo.types import GroupCredit, Step, StopReason, Trajectory, TrajectoryGroup

LINES = ("    x = 1", "    x = 2", "    y = x", "", "    # note", "    return a", "    return x + a")
MODES = (
    {},
    {"scorer": "region"},
    {"scorer": "between", "signal": "outcome"},
    {"scorer": "within", "signal": "return_to_go", "local_normalize": "mean_std"},
    {"scorer": "region", "unit": "region"},
    {"scorer": "within", "unit": "diff", "equality": "similar"},
    {"scorer": "step"},
)
SLOW = settings(max_examples=40, deadline=None)


def body(draw: st.DrawFn) -> str:
    parts = [draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=4)) for _ in range(2)]
    return "".join(f"def f{k}(a):\n" + "\n".join(part) + "\n" for k, part in enumerate(parts))


@st.composite
def groups(draw: st.DrawFn, failures: bool = True) -> TrajectoryGroup:
    """Rollouts of one to three steps: whole files, patches, commands; test outcomes may be missing; some failed."""
    trajectories = []
    for _ in range(draw(st.integers(1, 6))):
        steps: list[Step] = []
        before = "def f0(a):\n    return a\ndef f1(a):\n    return a\n"
        for _ in range(draw(st.integers(0, 3))):
            passed = draw(st.lists(st.booleans(), min_size=2, max_size=2))
            fields = {
                "reward": draw(st.sampled_from([0.0, 0.1, 1 / 3, 1.0])),
                "step_score": sum(passed) / 2,
                "test_outcomes": dict(zip(("t0", "t1"), passed, strict=True)) if draw(st.booleans()) else None,
            }
            kind = draw(st.sampled_from(["file", "file", "patch", "run"]))
            if kind == "file":
                after = body(draw)
                steps.append(whole_file(after, before=before, path="m.py", **fields))
                before = after
            elif kind == "patch":
                line = draw(st.sampled_from(LINES))
                head = "def f1(a):\n"
                response = f"<edit m.py>\n<search>{head}</search>\n<replace>{head}{line}\n</replace>\n</edit>"
                steps.append(Step(response=response, files_before={"m.py": before}, **fields))
                before = before.replace(head, f"{head}{line}\n")
            else:
                steps.append(Step(response="<run>ls</run>", files_before={"m.py": before}, action="run", **fields))
        failed = failures and draw(st.integers(0, 5)) == 0
        trajectories.append(
            Trajectory(steps=steps, stop_reason=StopReason.SANDBOX_ERROR if failed else StopReason.FINISHED)
        )
    return TrajectoryGroup(task_id="t", trajectories=trajectories)


def finite(credit: GroupCredit) -> bool:
    arrays = [a for part in (credit.advantages, *credit.parts.values()) for row in part for a in row]
    return all(np.isfinite(a).all() for a in arrays) and all(np.isfinite(v) for v in credit.metrics.values())


@pytest.mark.parametrize("mode", MODES, ids=str)
@given(groups(), st.randoms(use_true_random=False))
@SLOW
def test_shuffling_permutes_the_result(mode, group, random) -> None:
    if mode.get("scorer") is None and not any(s.test_outcomes for t in group.trajectories for s in t.steps):
        mode = {"scorer": "region"}
    order = list(range(len(group.trajectories)))
    random.shuffle(order)
    shuffled = TrajectoryGroup(task_id="other name", trajectories=[group.trajectories[i] for i in order])
    one, two = didpo(group, **mode), didpo(shuffled, **mode)
    assert finite(one)
    for place, i in enumerate(order):
        assert [a.tobytes() for a in two.advantages[place]] == [a.tobytes() for a in one.advantages[i]]
    assert {k: v for k, v in one.metrics.items() if k != "seconds"} == pytest.approx(
        {k: v for k, v in two.metrics.items() if k != "seconds"}
    )
    assert dumps(loads(dumps(one))) == dumps(one)


@pytest.mark.parametrize("mode", MODES, ids=str)
@given(group=groups(), normalize=st.sampled_from(["mean", "mean_std"]), baseline=st.sampled_from(["rollouts", "rows"]))
@SLOW
def test_lambda_zero_is_grpo(mode, group, normalize, baseline) -> None:
    episode = {"normalize": normalize, "episode_baseline": baseline}
    assert rows(didpo(group, lam=0, **mode, **episode).advantages) == rows(grpo(group, **episode).advantages)
    assert rows(gigpo(group, step_weight=0, **episode).advantages) == rows(grpo(group, **episode).advantages)


@given(groups())
@SLOW
def test_failed_rollouts_may_as_well_be_absent(group) -> None:
    kept = [t for t in group.trajectories if not t.failed]
    for name in CREDIT:
        full = CREDIT[name](group)
        alone = CREDIT[name](TrajectoryGroup(task_id="t", trajectories=kept))
        assert rows([r for r, ok in zip(full.advantages, full.assigned, strict=True) if ok]) == rows(alone.advantages)
        assert finite(full)


@given(groups())
@SLOW
def test_tokens_outside_changed_lines_get_the_episode_term(group) -> None:
    credit = didpo(group, lam=3.0)
    for g, trajectory in enumerate(group.trajectories):
        for s, step in enumerate(trajectory.steps):
            diff = credit.parts["diff"][g][s]
            assert len(diff) == step.n_tokens
            if step.action == "run" or trajectory.failed:
                assert not diff.any()
            assert all(diff[i] == 0 for i, c in enumerate(step.response) if c in "\n<")


@given(groups(failures=False), st.sampled_from(["region", "between"]))
@SLOW
def test_text_shared_by_all_earns_nothing_by_contrast(group, scorer) -> None:
    shared = "    shared = 0"
    trajectories = []
    for i, t in enumerate(group.trajectories):
        score = t.steps[0].step_score if t.steps else 0.0
        code = f"def f(a):\n{shared}\n    own = {i}\n"
        trajectories.append(Trajectory(steps=[whole_file(code, path="m.py", step_score=score, reward=score)]))
    credit = didpo(TrajectoryGroup(task_id="t", trajectories=trajectories), scorer=scorer)
    assert not any(a.any() for row in credit.parts["diff"] for a in row)


@given(st.lists(st.sampled_from([0.0, 0.1, 1 / 3, 1.0, -0.5]), min_size=1, max_size=8))
def test_episode_terms_sum_to_zero_and_equal_returns_to_exactly_zero(rewards) -> None:
    for name in ("grpo", "dr_grpo", "rloo"):
        values = [float(a[0]) for row in CREDIT[name](plain(rewards)).advantages for a in row]
        assert sum(values) == pytest.approx(0, abs=1e-5)
        if len(set(rewards)) == 1:
            assert values == [0.0] * len(rewards)


@given(groups())
@SLOW
def test_the_input_is_not_changed(group) -> None:
    before = repr(group)
    for function in CREDIT.values():
        function(group)
    assert repr(group) == before
