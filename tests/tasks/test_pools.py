"""Filters, slices, samples, the contamination guard, merged pools and the curriculum."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didpo.errors import UserError
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.pools import (
    Stage,
    case_fingerprint,
    curriculum,
    decontaminate,
    merge,
    question_hash,
    select,
    with_visible,
)
from didpo.types import CallTest, StdioTest, Task


def task(name: str, *, difficulty: str = "", question: str = "", date: str = "", tests: int = 4) -> Task:
    cases = tuple(
        StdioTest(name=f"case/{i}", path="solution.py", stdin=f"{name} {i}\n", expected=f"answer {i}")
        for i in range(tests)
    )
    meta = {"question": question or f"Question {name}", "contest_date": date, "split": "train"}
    return Task(task_id=name, prompt=name, files={}, hidden_tests=cases, difficulty=difficulty, meta=meta)


TASKS = [
    task("a", difficulty="easy", date="2024-01-01T10:00:00"),
    task("b", difficulty="hard", date="2024-02-01"),
    task("c", difficulty="easy"),
    task("d", difficulty="hard", question="Print any of them."),
]


def names(tasks: list[Task]) -> list[str]:
    return [t.task_id for t in tasks]


def test_filters() -> None:
    assert names(select(TASKS)) == ["a", "b", "c"]  # d accepts several answers, unchecked
    assert names(select(TASKS, several=True)) == ["a", "b", "c", "d"]
    assert names(select(TASKS, difficulty=["hard"], several=True)) == ["b", "d"]
    assert names(select(TASKS, ids=["c", "a"])) == ["a", "c"]
    assert names(select(TASKS, exclude=["a"])) == ["b", "c"]
    assert names(select(TASKS, since="2024-01-01", until="2024-01-01")) == ["a"]
    assert names(select(TASKS, since="2024-01-02")) == ["b"]
    assert names(select(TASKS, part="1:3")) == ["b", "c"]
    assert names(select(TASKS, part="-1:")) == ["c"]
    assert select(TASKS, split="test") == []
    assert [len(t.tests) for t in select(TASKS, max_tests=3)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"ids": ["x"]}, "unknown task 'x'"),
        ({"exclude": ["x"]}, "unknown task 'x'"),
        ({"difficulty": ["eazy"]}, "did you mean 'easy'"),
        ({"part": "first"}, "start:stop"),
        ({"max_tests": -1}, "must be 1 or more"),
    ],
)
def test_wrong_filters(filters: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        select(TASKS, **filters)  # type: ignore[arg-type]


@given(st.integers(0, 12), st.integers(0, 5))
def test_samples_are_the_same_for_the_same_seed(n: int, seed: int) -> None:
    many = [task(f"t{i}", tests=1) for i in range(10)]
    one, two = select(many, n=n, seed=seed), select(many, n=n, seed=seed)
    assert names(one) == names(two) and len(one) == min(n, 10)
    assert names(one) == [name for name in names(many) if name in names(one)]  # in the order of the set


@given(st.integers(1, 9), st.floats(0, 1), st.integers(0, 3))
def test_a_share_of_the_tests_is_visible(count: int, share: float, seed: int) -> None:
    before = task("t", tests=count)
    after = with_visible(before, share, seed=seed)
    assert sorted(t.name for t in after.tests) == sorted(t.name for t in before.tests)
    assert len(after.hidden_tests) >= 1
    assert len(after.visible_tests) == min(round(share * count), count - 1)
    assert with_visible(before, share, seed=seed) == after
    assert {t.name for t in after.visible_tests} <= {t.name for t in with_visible(after, 1.0, seed=seed).visible_tests}


def test_sets_are_loaded_with_a_share_of_visible_tests(tmp_path: Path) -> None:
    row = {"task_id": 1, "text": "Double.", "code": "def d(x):\n    return 2 * x\n"}
    row["test_list"] = [f"assert d({i}) == {2 * i}" for i in range(4)]
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(row))
    (loaded,), _ = load_benchmark("mbpp", tmp_path, visible=0.75)
    assert (len(loaded.visible_tests), len(loaded.hidden_tests)) == (3, 1)
    assert loaded.visible_tests[0].name == "assert/0"  # the one that the prompt shows


def test_contamination_guard() -> None:
    evaluation = [task("x", question="Sum two numbers!"), task("y")]
    same_words = task("p", question="  sum TWO\nnumbers ")
    same_cases = replace(task("y"), task_id="q", meta={"question": "Told in another way"})
    more_cases = replace(same_cases, task_id="r", hidden_tests=(*same_cases.hidden_tests, *task("z").hidden_tests[:1]))
    kept, dropped = decontaminate([same_words, same_cases, more_cases, task("y"), task("w")], evaluation)
    assert names(kept) == ["w"]
    assert dropped == {
        "p": "same question as x",
        "q": "same first cases as y",
        "r": "same first cases as y",
        "y": "same id as an evaluation problem",
    }


def test_small_cases_tell_nothing() -> None:
    small = CallTest(name="c", path="solution.py", function="f", args=(1,), expected=2)
    assert case_fingerprint(Task(task_id="t", prompt="", files={}, hidden_tests=(small,))) is None
    assert question_hash(task("a", question="A b.")) == question_hash(task("b", question="a, B"))


def test_merge_keeps_the_first() -> None:
    merged, skipped = merge([task("a"), task("b")], [task("a"), task("c", question="Question B"), task("d")])
    assert names(merged) == ["a", "b", "d"]
    assert skipped == {"same id": 1, "same question": 1}


def test_curriculum() -> None:
    stages = [Stage(step=10, difficulties=("easy", "hard")), Stage(step=0, difficulties=("easy",))]
    assert names(curriculum(TASKS, stages, 9)) == ["a", "c"]
    assert names(curriculum(TASKS, stages, 10)) == ["a", "b", "c", "d"]
    with pytest.raises(UserError, match="no stage for step 0"):
        curriculum(TASKS, stages[:1], 0)
    with pytest.raises(UserError, match="did you mean 'hard'"):
        curriculum(TASKS, [Stage(step=0, difficulties=("harder",))], 0)
