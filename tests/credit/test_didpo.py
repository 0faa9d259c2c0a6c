"""DiDPO by hand: golden groups for each scorer, the default, the cases that users of similar projects met."""

from __future__ import annotations

import numpy as np
import pytest
from groups import firsts, on_text, plain, whole_file

from didpo.credit import CREDIT, DiDPOSettings, didpo, didpo_published, gigpo, grpo
from didpo.errors import UserError
from didpo.types import EditSpan, Step, StopReason, Trajectory, TrajectoryGroup

F_RIGHT, F_WRONG = "def f(xs):\n    return sum(xs)\n", "def f(xs):\n    return len(xs)\n"
G_RIGHT, G_WRONG = "def g(x):\n    return x + 1\n", "def g(x):\n    return x - 1\n"
PAIRS = ((True, True), (True, False), (False, True), (False, False))


def code(f: bool, g: bool) -> str:
    return (F_RIGHT if f else F_WRONG) + "\n" + (G_RIGHT if g else G_WRONG)


def rollout(f: bool, g: bool, *, failed: bool = False, text: str | None = None) -> Trajectory:
    step = whole_file(
        text or code(f, g), reward=float(f and g), step_score=(f + g) / 2, test_outcomes={"tf": f, "tg": g}
    )
    return Trajectory(
        steps=[step],
        outcome=float(f and g),
        stop_reason=StopReason.SANDBOX_ERROR if failed else StopReason.FINISHED,
    )


def four() -> TrajectoryGroup:
    """f right, right, wrong, wrong; g right, wrong, right, wrong; a test for each."""
    return TrajectoryGroup(task_id="t", trajectories=[rollout(f, g) for f, g in PAIRS])


def lines() -> TrajectoryGroup:
    """The same by single lines, with a line of its own in each row between, so that each anchor is one line."""
    texts = [
        f"f = {'sum' if f else 'len'}\nown = {i}\ng = {'plus' if g else 'minus'}\n" for i, (f, g) in enumerate(PAIRS)
    ]
    return TrajectoryGroup(
        task_id="t", trajectories=[rollout(f, g, text=text) for (f, g), text in zip(PAIRS, texts, strict=True)]
    )


def test_the_default_is_test_attribution() -> None:
    # f decides tf (outcomes 1 1 0 0, contents A A B B: w = 1) and not tg (1 0 1 0: w = 0). Local term of f's lines:
    # (y - 1/2) / max(1, 1). g the other way round. Lambda 1.
    group = four()
    credit = didpo(group)
    for g, value in ((0, 0.5), (1, 0.5), (2, -0.5), (3, -0.5)):
        text = (F_RIGHT if g < 2 else F_WRONG).split("\n")[1]
        assert set(on_text(credit, group, g, 0, text)) == {np.float32(value)}
    for g, value in ((0, 0.5), (1, -0.5), (2, 0.5), (3, -0.5)):
        text = (G_RIGHT if g in (0, 2) else G_WRONG).split("\n")[1]
        assert set(on_text(credit, group, g, 0, text)) == {np.float32(value)}
    assert "scorer tests" in credit.notes[0]
    assert credit.metrics["usable_groups"] == 2 and credit.metrics["lambda"] == 1
    labels = {a.label for a in credit.anchors}
    assert labels == {"main.py::f decides tf 1.00", "main.py::g decides tg 1.00"}
    # tags, thoughts and line ends earn nothing
    response = group.trajectories[0].steps[0].response
    diff = credit.parts["diff"][0][0]
    assert not diff[: response.index("def f")].any() and not diff[response.index("</code>") :].any()
    assert all(diff[i] == 0 for i, c in enumerate(response) if c == "\n")


def test_parts_add_up() -> None:
    credit = didpo(four(), lam=1.7)
    for a, e, d in zip(credit.advantages, credit.parts["episode"], credit.parts["diff"], strict=True):
        assert (a[0] == e[0] + d[0]).all() and a[0].dtype == np.float32


def test_without_outcomes_the_step_score_and_regions_serve() -> None:
    # y = 1, 0.5, 0.5, 0. The line "f = sum" is an anchor of rows 0, 1 (mean 0.75); the alternatives are the rows that
    # edited the top level without it: 2, 3 (mean 0.25). Contrast 0.5, share 1/2, shrink 2/3: 1/6; lambda 2: 1/3.
    group = lines()
    for t in group.trajectories:
        t.steps[0].test_outcomes = None
    credit = didpo(group)
    assert "scorer region with the signal step_score" in credit.notes and credit.metrics["lambda"] == 2
    assert set(on_text(credit, group, 0, 0, "f = sum")) == {np.float32(1 / 3)}
    assert set(on_text(credit, group, 2, 0, "f = len")) == {np.float32(-1 / 3)}
    by_line = {a.lines[-1].strip(): a for a in credit.anchors}
    anchor = by_line["f = sum"]
    assert anchor.contrast == 0.5 and anchor.mean_signal == 0.75 and anchor.n_rows == 2
    assert {m.trajectory for m in anchor.members} == {0, 1}
    response = group.trajectories[0].steps[0].response
    spans = anchor.members[0].spans
    assert response[spans[-1][0] : spans[-1][1]].endswith("f = sum")
    for t in group.trajectories:
        t.steps[0].step_score = None
    assert "scorer region with the signal return_to_go" in didpo(group).notes


def test_published_by_hand() -> None:
    # Return-to-go 1, 0, 0, 0. Episode: R - 1/4 = 3/4, -1/4 ... Anchor "sum" of rows 0, 1: mean 1/2 -> 1/2, -1/2 on it;
    # anchor "len" of rows 2, 3: 0. "g = plus" of rows 0, 2: 1/2, -1/2. Equality is exact here to keep anchors apart.
    group = lines()
    credit = didpo_published(group, equality="exact")
    assert credit.algorithm == "didpo_published"
    assert firsts(credit) == [0.75, -0.25, -0.25, -0.25]
    assert set(on_text(credit, group, 0, 0, "f = sum")) == {np.float32(0.5)}
    assert set(on_text(credit, group, 1, 0, "f = sum")) == {np.float32(-0.5)}
    assert set(on_text(credit, group, 2, 0, "f = len")) == {np.float32(0)}
    assert set(on_text(credit, group, 2, 0, "g = plus")) == {np.float32(-0.5)}
    same = didpo(group, preset="published", equality="exact")
    assert [a[0].tobytes() for a in same.advantages] == [a[0].tobytes() for a in credit.advantages]


def test_between_by_hand() -> None:
    # A fifth row without edits and score 0 counts among the others: members of "sum" 1, 0.5 (mean 3/4), others 0.5, 0,
    # 0 (mean 1/6): contrast 7/12, share 3/5, shrink 2/3 -> 7/30, lambda 1.
    group = lines()
    group.trajectories.append(Trajectory(steps=[Step(response="x", edits=(), step_score=0.0, reward=0.0)]))
    credit = didpo(group, scorer="between", lam=1, equality="exact")
    assert on_text(credit, group, 0, 0, "f = sum")[0] == pytest.approx(7 / 30)
    assert credit.parts["diff"][4][0].tolist() == [0]


def test_step_control_by_hand() -> None:
    # y = 1, 0.5, 0.5, 0, mean 0.5, on every token of the response
    credit = didpo(four(), scorer="step", lam=2)
    assert [set(a[0].tolist()) for a in credit.parts["diff"]] == [{1.0}, {0.0}, {0.0}, {-1.0}]


def test_units() -> None:
    group = four()
    region = didpo(group, scorer="region", unit="region", lam=1)
    assert on_text(region, group, 0, 0, "def f")[0] == pytest.approx(1 / 6)
    group.trajectories += four().trajectories
    whole = didpo(group, scorer="within", signal="return_to_go", unit="diff", lam=1)
    # each diff occurs twice with equal returns: within gives exactly 0
    assert len(whole.anchors) == 4 and not any(a[0].any() for a in whole.parts["diff"])
    # region: rows (1, 1) twice, mean 1, against the six others of the same region, mean 1/3: 2/3 * 6/8 * 2/3 = 1/3
    contrast = didpo(group, scorer="region", unit="diff", equality="exact", lam=1)
    assert on_text(contrast, group, 0, 0, "return sum")[0] == pytest.approx(1 / 3)


def test_nothing_repeats() -> None:
    codes = ("aa1 = 1\n", "bb2 = [2]\n", "cc3 = {3}\n")
    trajectories = [
        Trajectory(steps=[whole_file(c, before=f"state {i}\n", reward=r, step_score=r, test_outcomes={"t": bool(r)})])
        for i, (c, r) in enumerate(zip(codes, (1.0, 0.0, 0.0), strict=True))
    ]
    group = TrajectoryGroup(task_id="t", trajectories=trajectories)
    want = firsts(grpo(group))
    for cfg in (
        {},
        {"scorer": "region"},
        {"scorer": "between"},
        {"scorer": "within", "signal": "return_to_go"},
        {"unit": "region", "scorer": "region"},
        {"unit": "diff", "scorer": "within"},
    ):
        credit = didpo(group, **cfg)
        assert firsts(credit) == want and not any(a[0].any() for a in credit.parts["diff"]), cfg
        assert credit.metrics["usable_groups"] == 0 and credit.metrics["singletons"] == 3, cfg
        assert credit.metrics["singleton_share"] == 1
    assert firsts(gigpo(group)) == want
    published = didpo_published(group)
    assert firsts(published) == pytest.approx([0.6667, -0.3333, -0.3333], abs=1e-4)


def test_failed_rollouts_change_nothing() -> None:
    group = four()
    clean = didpo(group)
    group.trajectories.insert(1, rollout(True, True, failed=True))
    group.trajectories[1].steps[0].reward = float("nan")
    credit = didpo(group)
    assert credit.assigned == [True, False, True, True, True]
    assert not credit.advantages[1][0].any() and credit.metrics["failed/sandbox_error"] == 1
    kept = [a for a, ok in zip(credit.advantages, credit.assigned, strict=True) if ok]
    assert [a[0].tobytes() for a in kept] == [a[0].tobytes() for a in clean.advantages]
    assert all(m.trajectory != 1 for a in credit.anchors for m in a.members)


def test_all_rows_in_which_a_region_stands_count() -> None:
    # Row 4 edits only g but f stands there, right: f has contents A A B B A with outcomes 1 1 0 0 1, mean 3/5.
    group = four()
    before = code(True, True)
    response = "<edit main.py>\n<search>x + 1</search>\n<replace>x - 1</replace>\n</edit>"
    group.trajectories.append(
        Trajectory(
            steps=[
                Step(
                    response=response,
                    files_before={"main.py": before},
                    reward=0.0,
                    step_score=0.5,
                    test_outcomes={"tf": True, "tg": False},
                )
            ]
        )
    )
    credit = didpo(group)
    assert on_text(credit, group, 0, 0, "return sum(xs)")[0] == pytest.approx(0.4)
    # its own edit, in g: contents right wrong right wrong wrong, outcomes 1 0 1 0 0, w = 1, mean 2/5. The search text
    # belongs to g too.
    assert on_text(credit, group, 4, 0, "x - 1")[0] == pytest.approx(-0.4)
    assert on_text(credit, group, 4, 0, "x + 1")[0] == pytest.approx(-0.4)


def test_a_row_without_outcomes_is_left_out() -> None:
    group = four()
    group.trajectories.append(rollout(True, True))
    group.trajectories[4].steps[0].test_outcomes = None
    credit = didpo(group)
    assert on_text(credit, group, 0, 0, "return sum(xs)")[0] == 0.5
    assert not credit.parts["diff"][4][0].any()
    assert any("1 of 5 rows record no test outcomes" in note for note in credit.notes)


def test_only_changed_lines_earn() -> None:
    # the file before already holds f as written: only g's changed line earns
    group = four()
    for t in group.trajectories:
        step = t.steps[0]
        step.files_before = {"main.py": step.files_after["main.py"].replace("x + 1", "x").replace("x - 1", "x")}
    credit = didpo(group)
    assert not on_text(credit, group, 0, 0, "def f(xs):\n    return sum(xs)").any()
    assert on_text(credit, group, 0, 0, "return x + 1")[0] == 0.5
    assert not on_text(credit, group, 0, 0, "def g(x):").any()


def test_a_broken_file_is_blamed_on_the_function_that_breaks_it() -> None:
    good = code(True, True)
    bad = good.replace("return sum(xs)", "return sum(xs")
    trajectories = [
        Trajectory(steps=[whole_file(c, reward=ok, step_score=ok, test_outcomes={"tf": bool(ok), "tg": bool(ok)})])
        for c, ok in ((good, 1.0), (good, 1.0), (bad, 0.0), (bad, 0.0))
    ]
    group = TrajectoryGroup(task_id="t", trajectories=trajectories)
    credit = didpo(group)
    assert on_text(credit, group, 2, 0, "return sum(xs")[0] == -0.5
    assert not on_text(credit, group, 2, 0, "return x + 1").any()


def test_tokens_follow_their_own_offsets() -> None:
    # tokens of several characters, an end mark, and "é" as two byte tokens
    text = "é = 1\n"
    trajectories = []
    for body, passed in ((text, True), (text.replace("1", "2"), False)) * 2:
        step = whole_file(body, reward=float(passed), step_score=float(passed), test_outcomes={"t": passed})
        at = step.response.index("é")
        end = len(step.response)
        step.token_offsets = [(0, at), (at, at + 1), (at, at + 1), (at + 1, at + 5), (at + 5, end), (end, end)]
        trajectories.append(Trajectory(steps=[step]))
    credit = didpo(TrajectoryGroup(task_id="t", trajectories=trajectories))
    assert credit.parts["diff"][0][0].tolist() == [0, 0.5, 0.5, 0.5, 0, 0]


def test_where_no_line_is_shared_functions_alike_serve() -> None:
    # every line differs, but the functions are alike: within gives 1 - 1/2 and 0 - 1/2
    def text(i: int) -> str:
        return f"def compute_total(values, start{i}):\n    return sum(values, start{i}) + {i}\n"

    group = TrajectoryGroup(
        task_id="t", trajectories=[Trajectory(steps=[whole_file(text(i), reward=float(i))]) for i in (0, 1)]
    )
    credit = didpo_published(group, equality="exact")
    assert on_text(credit, group, 1, 0, "return sum")[0] == 0.5
    assert not any(a[0].any() for a in didpo_published(group, equality="exact", fallback="none").parts["diff"])


def test_other_languages_are_cut_into_blocks() -> None:
    # two blocks between the lines that all versions share; each decides its own test
    def page(first: str, second: str) -> str:
        return f"// start\nfunction f() {{\n  return {first};\n}}\nfunction g() {{\n  return {second};\n}}\n"

    trajectories = [
        Trajectory(
            steps=[
                whole_file(
                    page("1" if f else "2", "3" if g else "4"),
                    path="a.js",
                    reward=float(f and g),
                    step_score=(f + g) / 2,
                    test_outcomes={"f": f, "g": g},
                )
            ]
        )
        for f, g in PAIRS
    ]
    group = TrajectoryGroup(task_id="t", trajectories=trajectories)
    credit = didpo(group)
    assert on_text(credit, group, 0, 0, "return 1")[0] == 0.5
    assert on_text(credit, group, 1, 0, "return 4")[0] == -0.5


def test_what_is_recorded_decides_the_default() -> None:
    group = lines()
    group.trajectories[0].steps[0].step_score = None
    for t in group.trajectories:
        t.steps[0].test_outcomes = None
    credit = didpo(group)
    assert credit.notes[0].startswith("1 of 4 rows record no step score") and "return_to_go" in credit.notes[1]
    # test outcomes are of no use where nothing tells the regions of the edits
    bare = Step(response="x = 1\n", edits=(EditSpan(path="a.py", kind="add", text="x = 1\n", start=0, end=6),))
    bare.test_outcomes, bare.reward = {"t": True}, 1.0
    group = TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[bare]) for _ in range(3)])
    assert "scorer region with the signal return_to_go" in didpo(group).notes


def test_settings_and_mistakes() -> None:
    with pytest.raises(UserError, match="did you mean 'scorer'"):
        didpo(four(), scorers="tests")
    with pytest.raises(UserError, match="did you mean 'tests'"):
        didpo(four(), scorer="test")
    group = four()
    group.trajectories[2].steps[0].step_score = float("inf")
    with pytest.raises(UserError, match="step score of task 't', trajectory 2, step 0"):
        didpo(group)
    group.trajectories[2].steps[0].step_score = None
    with pytest.raises(UserError, match="1 rows record no step score"):
        didpo(group, scorer="region", signal="step_score")
    with pytest.raises(UserError, match="needs test_outcomes"):
        didpo(plain([1, 0]), scorer="tests")
    assert DiDPOSettings.published(lam=1.2).lam == 1.2


@pytest.mark.parametrize("name", sorted(CREDIT))
def test_every_function_takes_odd_groups(name: str) -> None:
    function = CREDIT[name]
    assert function(TrajectoryGroup(task_id="t", trajectories=[])).advantages == []
    odd = TrajectoryGroup(
        task_id="t",
        trajectories=[
            Trajectory(steps=[]),
            Trajectory(steps=[Step(response="")], outcome=1.0),
            Trajectory(steps=[Step(response="ab", token_offsets=[(0, 2), (2, 2)], reward=0.5)]),
            Trajectory(steps=[Step(response="ab")], stop_reason=StopReason.MODEL_ERROR),
        ],
    )
    credit = function(odd)
    assert [len(a) for row in credit.advantages for a in row] == [0, 2, 2]
    assert credit.assigned == [True, True, True, False]
    assert all(np.isfinite(a).all() for row in credit.advantages for a in row)
    assert all(np.isfinite(v) for v in credit.metrics.values())
    only_failed = TrajectoryGroup(task_id="t", trajectories=[odd.trajectories[3]])
    assert function(only_failed).assigned == [False] and function(only_failed).metrics["failed/model_error"] == 1
