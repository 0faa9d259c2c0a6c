"""Faults seen in published credit code, each with the rule that this engine follows instead.

Which tokens an edit's credit falls on, which edits and which rows are seen, and what a rollout counts in a mean.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from didpo.actions import apply, parse
from didpo.credit import didpo, didpo_published, gigpo, grpo
from didpo.tokens import Tokenizer, train_tokenizer
from didpo.types import GroupCredit, Step, Trajectory, TrajectoryGroup

BEFORE = "def area(w, h):\n    # both sides\n    size = w + h\n\n    return size\n"
RIGHT = BEFORE.replace("w + h", "w * h")
LONG = BEFORE.replace(
    "    size = w + h\n", "    # first the sides, then their product ……\n\n    size = w\n    size *= h\n"
)
THINK = "<think>ééé … the sides are multiplied, not added</think>\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([BEFORE, RIGHT, LONG, "<think></think><edit m.py><code></code></edit>"] * 4, vocab_size=330)


def whole(code: str, think: str = "") -> str:
    return f"{think}<edit m.py>\n<code>\n{code}</code>\n</edit>"


def step(response: str, reward: float, tokenizer: Tokenizer | None = None, before: str = BEFORE) -> Step:
    """A graded step; one token per character unless a tokenizer is given."""
    offsets = None
    if tokenizer is not None:
        offsets = tokenizer.offsets_of([*tokenizer.encode(response), tokenizer.eos_ids[0]])
    outcomes = {"t": bool(reward)}
    return Step(
        response=response,
        reward=reward,
        files_before={"m.py": before},
        token_offsets=offsets,
        step_score=reward,
        test_outcomes=outcomes,
    )


def group_of(*steps: Step) -> TrajectoryGroup:
    trajectories = [Trajectory(steps=[s], outcome=s.reward, trajectory_id=str(i)) for i, s in enumerate(steps)]
    return TrajectoryGroup(task_id="t", trajectories=trajectories)


def painted(credit: GroupCredit, g: int, s: int = 0) -> set[int]:
    return set(np.flatnonzero(credit.parts["diff"][g][s]).tolist())


def places(response: str, *texts: str) -> set[int]:
    """Characters of the last occurrence of each text."""
    found = [response.rindex(text) for text in texts]
    return {i for at, text in zip(found, texts, strict=True) for i in range(at, at + len(text))}


CHANGED = {RIGHT: ["    size = w * h"], LONG: ["    size = w", "    size *= h"]}


@pytest.mark.parametrize("code", [RIGHT, LONG])
@pytest.mark.parametrize("think", ["", THINK])
def test_spans_are_those_of_the_sampled_tokens(tokenizer: Tokenizer, code: str, think: str) -> None:
    """Credit falls on the tokens that wrote a changed line, found through their own offsets, not in proportion."""
    response = whole(code, think)
    wrong = BEFORE.replace("w + h", "w - h")
    group = group_of(step(response, 1.0, tokenizer), step(whole(code), 1.0), step(whole(wrong), 0.0))
    found = painted(didpo(group), 0)
    start = response.index(code)
    lines = code.split("\n")
    ranges, at = [], start
    for line in lines:
        if line in CHANGED[code]:
            ranges.append((at, at + len(line)))
        at += len(line) + 1
    assert len(ranges) == len(CHANGED[code])
    offsets = group.trajectories[0].steps[0].token_offsets or ()
    want = {t for t, (a, b) in enumerate(offsets) if any(a < stop and b > first for first, stop in ranges)}
    assert found == want
    length, count = len(response), len(offsets)
    proportional = {int(i * count / length) for first, stop in ranges for i in range(first, stop)}
    assert proportional != want  # the rule that is not to come back would give other tokens here


def test_offsets_are_those_of_the_raw_text() -> None:
    """Comments and blank lines before and between changed lines shift nothing."""
    long = whole(LONG, THINK)
    wrong = whole(LONG.replace("size *= h", "size += h"))
    credit = didpo(group_of(step(long, 1.0), step(long, 1.0), step(wrong, 0.0)))
    both = places(long, "    size = w\n    size *= h")
    assert painted(credit, 0) == {i for i in both if long[i] != "\n"}
    for text in ("# first the sides", "# both sides", "return size", "def area", "<think>"):
        assert not painted(credit, 0) & places(long, text)


FILES = {"a.py": "x = 0\nu = 0\n", "b.py": "y = 0\n"}
PIECES = ["x = 1", "u = 2 + 3", "y = [4]"]


def several(*values: str) -> str:
    x, u, y = values
    return (
        f"<edit a.py>\n<search>\nx = 0\n</search>\n<replace>\n{x}\n</replace>\n"
        f"<search>\nu = 0\n</search>\n<replace>\n{u}\n</replace>\n</edit>\n"
        f"text between\n<edit b.py>\n<code>\n{y}\n</code>\n</edit>"
    )


@pytest.mark.parametrize("shared", range(3))
def test_every_edit_of_a_response_is_seen(shared: int) -> None:
    """The second and third edit of a response earn credit like the first."""
    own = [[f"o{g}_{i} = {g * 7 + i}" for i in range(3)] for g in range(3)]
    for g in (0, 1):
        own[g][shared] = PIECES[shared]
    responses = [several(*values) for values in own]
    assert all(apply(parse(r), FILES).error is None for r in responses)
    group = TrajectoryGroup(
        task_id="t",
        trajectories=[
            Trajectory(steps=[Step(response=r, files_before=FILES, reward=v)], outcome=v)
            for r, v in zip(responses, (1.0, 0.0, 0.0), strict=True)
        ],
    )
    credit = didpo(group, scorer="within", signal="return_to_go", equality="exact")
    for g in (0, 1):
        assert places(responses[g], PIECES[shared]) <= painted(credit, g)
    for root in group.trajectories[2].steps[0].response.split("\n"):
        if root.startswith("o2_"):
            assert not painted(credit, 2) & places(responses[2], root)


@pytest.mark.parametrize("pair", list(itertools.combinations(range(12), 2)))
def test_every_pair_of_rollouts_is_compared(pair: tuple[int, int]) -> None:
    """Twelve rollouts make 66 pairs; whichever two share an edit, it is found, equal or nearly so."""
    texts = [f"    {chr(97 + g) * 9} = {g + 3} ** {g}" for g in range(12)]
    texts[pair[0]], texts[pair[1]] = "    total = sum(values) + 100", "    total = sum(values) + 101"
    codes = [BEFORE.replace("    size = w + h", text) for text in texts]
    steps = [step(whole(code), float(g == pair[0])) for g, code in enumerate(codes)]
    credit = didpo_published(group_of(*steps), gate="lines")
    assert {g for g in range(12) if painted(credit, g)} == set(pair)
    assert [{m.trajectory for m in a.members} for a in credit.anchors] == [set(pair)]


def test_the_state_is_the_one_before_the_action() -> None:
    """GiGPO compares rows that chose in the same state; where the action led does not matter."""

    def turns(first: str, second: str, reward: float) -> Trajectory:
        middle = {"m.py": first}
        return Trajectory(
            steps=[
                Step(response="ab", files_before={"m.py": BEFORE}, files_after=middle, reward=0.0),
                Step(response="cd", files_before=middle, files_after={"m.py": second}, reward=reward),
            ]
        )

    group = TrajectoryGroup(task_id="t", trajectories=[turns("p", "z", 1.0), turns("q", "z", 0.0)])
    part = gigpo(group, normalize="mean", gamma=1.0).parts["step"]
    assert [[float(a[0]) for a in row] for row in part] == [[0.5, 0.0], [-0.5, 0.0]]
    met = TrajectoryGroup(task_id="t", trajectories=[turns("p", "y", 1.0), turns("p", "z", 0.0)])
    part = gigpo(met, normalize="mean", gamma=1.0).parts["step"]
    assert [[float(a[0]) for a in row] for row in part] == [[0.5, 0.5], [-0.5, -0.5]]


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_a_long_rollout_counts_once(turns: int) -> None:
    """The mean of a group is over rollouts: how many steps the unsolved one took changes no advantage."""

    def taking(count: int, reward: float) -> Trajectory:
        return Trajectory(steps=[Step(response="ab", reward=reward * (s == count - 1)) for s in range(count)])

    group = TrajectoryGroup(task_id="t", trajectories=[taking(1, 1.0), taking(turns, 0.0), taking(1, 0.5)])
    for function in (grpo, didpo, gigpo):
        credit = function(group, normalize="mean")
        assert [float(row[0][0]) for row in credit.parts["episode"]] == [0.5, -0.5, 0.0]
    counted = grpo(group, normalize="mean", episode_baseline="rows")  # the published way, on demand
    assert float(counted.advantages[0][0][0]) == pytest.approx(1 - 1.5 / (turns + 2))
