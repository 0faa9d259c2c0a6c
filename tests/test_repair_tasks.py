"""Generated repair tasks: deterministic, split by composition, with tests that fail every wrong form."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didpo.actions import apply, parse
from didpo.errors import UserError
from didpo.sandbox import open_sandbox
from didpo.tasks import load_tasks
from didpo.tasks.repair import HELPER, PATH, function_text, is_heldout
from didpo.tasks.scripted import known_outcomes, scripted_expert, scripted_response, scripted_trajectory
from didpo.types import Task

OPTIONS: list[dict[str, Any]] = [
    {},
    {"functions": 5},
    {"depth": 2, "functions": 2},
    {"faults": "line"},
    {"faults": "stub"},
    {"design": "coordinated"},
    {"design": "coordinated", "depth": 2, "faults": "line"},
    {"tests": "stdio"},
    {"tests": "stdio", "design": "coordinated"},
]


def variants(task: Task) -> list[tuple[dict[str, str], str]]:
    """(files, function) for every combination of forms of one function in the reference, right ones included."""
    assert task.reference is not None
    text = task.reference[PATH]
    lines = task.meta["lines"]
    out = []
    for name, stages in lines.items():
        right = next(c for c in itertools.product(*stages) if function_text(name, c) in text)
        for chosen in itertools.product(*stages):
            out.append(({PATH: text.replace(function_text(name, right), function_text(name, chosen))}, name))
    return out


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_the_start_fails_and_the_reference_passes(options: dict[str, Any], split: str) -> None:
    for task in load_tasks("repair", split=split, n=20, seed=3, **options):
        assert task.reference is not None
        start, reference = known_outcomes(task, task.files), known_outcomes(task, task.reference)
        assert all(reference.values())
        for function in task.meta["functions"]:  # every function is wrong at the start
            own = {test for test in start if test.startswith(f"{function}/")}
            assert own
            assert not all(start[test] for test in own)
        assert all(is_heldout(c) == (split == "heldout") for c in task.meta["composition"].values())


@pytest.mark.parametrize("options", [o for o in OPTIONS if o.get("design") != "coordinated"])
def test_every_wrong_form_fails_a_visible_and_a_hidden_test(options: dict[str, Any]) -> None:
    for task in load_tasks("repair", n=5, seed=1, **options):
        for files, name in variants(task):
            outcomes = known_outcomes(task, files)
            if files == task.reference:
                continue
            for tests in (task.visible_tests, task.hidden_tests):
                failed = {test.name for test in tests if not outcomes[test.name]}
                assert failed
                if options.get("tests") != "stdio":  # and no test of another function
                    assert all(test.startswith(f"{name}/") for test in failed)


def test_coordinated_lines_are_right_only_together() -> None:
    for task in load_tasks("repair", n=10, seed=2, design="coordinated"):
        assert task.reference is not None
        lines = task.meta["lines"]
        forms = lines[HELPER][0]
        right: dict[str, int] = {name: 0 for name in lines if name != HELPER}
        for form in range(4):
            for polarity in itertools.product((0, 1), repeat=len(right)):
                text = function_text(HELPER, [forms[form]])
                for name, follows in zip(right, polarity, strict=True):
                    text += function_text(name, [lines[name][0][follows], *(stage[0] for stage in lines[name][1:])])
                outcomes = known_outcomes(task, {PATH: text})
                for name, follows in zip(right, polarity, strict=True):
                    own = all(ok for test, ok in outcomes.items() if test.startswith(f"{name}/"))
                    assert own == (form < 2 and follows == form ^ task.meta["opposite"][name])


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(["independent", "coordinated"]))
def test_splits_share_no_composition(seed_a: int, seed_b: int, design: str) -> None:
    found = [
        {
            c
            for task in load_tasks("repair", split=split, n=8, seed=seed, design=design)
            for c in task.meta["composition"].values()
        }
        for split, seed in (("train", seed_a), ("heldout", seed_b))
    ]
    assert not found[0] & found[1]


def test_same_arguments_same_tasks_on_every_hash_seed() -> None:
    code = (
        "import hashlib; from didpo.tasks import load_tasks; "
        "print(hashlib.sha256(repr([load_tasks('repair', n=5, seed=7, design=d) "
        "for d in ('independent', 'coordinated')]).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(digests) == 1
    assert load_tasks("repair", n=3) == load_tasks("repair", n=6)[:3]
    assert load_tasks("repair", n=3, seed=1) != load_tasks("repair", n=3)
    assert len({task.task_id for task in load_tasks("repair", n=100)}) == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"functons": 3}, "did you mean 'functions'"),
        ({"design": "coordinate"}, "did you mean 'coordinated'"),
        ({"functions": 0}, "functions must be from 1 to 12"),
        ({"depth": 9}, "depth must be from 1 to 4"),
        ({"split": "held"}, "did you mean 'heldout'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_tasks("repair", **options)
    with pytest.raises(UserError, match="did you mean 'repair'"):
        load_tasks("repairs")


# ---------------------------------------------------------------- the scripted agent


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("style", ["rewrite", "patch"])
def test_the_expert_solves_everything_in_one_turn(options: dict[str, Any], style: Any) -> None:
    for task in load_tasks("repair", n=10, split="heldout", **options):
        done = apply(parse(scripted_expert(task, task.files, style=style)), task.files)
        assert done.error is None
        assert all(known_outcomes(task, done.files).values())


@pytest.mark.parametrize("style", ["rewrite", "patch"])
@pytest.mark.parametrize(("options", "turns"), [({}, 3), ({"functions": 5}, 4), ({"design": "coordinated"}, 3)])
def test_the_imperfect_agent_solves_about_a_third(style: Any, options: dict[str, Any], turns: int) -> None:
    tasks = load_tasks("repair", n=200, split="heldout", **options)
    played = [scripted_trajectory(task, random.Random(i), max_turns=turns, style=style) for i, task in enumerate(tasks)]
    assert 0.2 < sum(turn[-1].solved for turn in played) / len(played) < 0.45
    assert sum(turn[0].solved for turn in played) / len(played) < 0.1


def test_skill_orders_success() -> None:
    tasks = load_tasks("repair", n=100)
    solved = [
        sum(scripted_trajectory(task, random.Random(i), skill)[-1].solved for i, task in enumerate(tasks))
        for skill in (0.0, 0.5, 0.8, 1.0)
    ]
    assert solved == sorted(solved)
    assert solved[-1] == 100


def test_it_keeps_what_passes_and_rewrites_what_fails() -> None:
    (task,) = load_tasks("repair", n=1)
    assert task.reference is not None
    shown = {test.name: not test.name.startswith("f2/") for test in task.visible_tests}
    response = scripted_response(task, task.files, shown, random.Random(0), skill=1.0)
    (edit,) = parse(response).edits
    before, after, right = (text.split("def ")[1:] for text in (task.files[PATH], edit.text.text, task.reference[PATH]))
    assert [after[0], after[2]] == [before[0], before[2]]
    assert after[1] == right[1]


def test_other_tasks_have_no_scripted_agent() -> None:
    with pytest.raises(UserError, match="not a generated repair task"):
        scripted_expert(Task(task_id="x", prompt="", files={}), {})


def test_foreign_lines_need_a_sandbox() -> None:
    (task,) = load_tasks("repair", n=1)
    for text in (task.files[PATH] + "import os\n", "", task.files[PATH].rstrip("\n")):
        with pytest.raises(ValueError, match="not the task's own"):
            known_outcomes(task, {PATH: text})


@pytest.mark.parametrize("options", [{}, {"design": "coordinated"}, {"tests": "stdio"}])
def test_the_sandbox_agrees_with_the_known_outcomes(options: dict[str, Any]) -> None:
    (task,) = load_tasks("repair", n=1, seed=5, **options)
    programs = [*[files for files, _ in variants(task)][::3], dict(task.files)]
    with open_sandbox(require="process", workers=1) as sandbox:
        for files, results in zip(programs, sandbox.grade_many([(f, task.tests) for f in programs]), strict=True):
            assert {name: result.passed for name, result in results.items()} == known_outcomes(task, files)
