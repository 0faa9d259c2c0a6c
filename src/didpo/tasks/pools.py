"""Pools of tasks: filters, slices, merged pools, the guard against training on evaluation problems, the curriculum."""

from __future__ import annotations

import ast
import hashlib
import random
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from didpo.errors import UserError, unknown_name
from didpo.tasks.reading import parse, several_answers
from didpo.types import AssertTest, CallTest, StdioTest, Task, Test

FINGERPRINT_CASES = 3


def select(
    tasks: Sequence[Task],
    *,
    ids: Collection[str] | None = None,
    exclude: Collection[str] = (),
    difficulty: Collection[str] | None = None,
    split: str | None = None,
    since: str | None = None,
    until: str | None = None,
    several: bool = False,
    part: str | None = None,
    n: int | None = None,
    seed: int = 0,
    max_tests: int | None = None,
) -> list[Task]:
    """The tasks that fit all that is given, in their order.

    `since`, `until`: contest dates (YYYY-MM-DD, both included); an undated task fits neither. `several=True` keeps
    problems that accept several answers and have no checker. `part` is a slice "start:stop" of what is left;
    `n` a sample without replacement of that, the same for the same seed; `max_tests` caps the tests of each task, the
    visible ones first. Unknown ids or difficulties raise UserError.
    """
    known = {t.task_id for t in tasks}
    for name in (*(ids or ()), *exclude):
        if name not in known:
            raise unknown_name("task", name, known)
    levels = {t.difficulty for t in tasks}
    for level in difficulty or ():
        if level not in levels:
            raise unknown_name("difficulty", level, levels)
    kept = [
        t
        for t in tasks
        if (ids is None or t.task_id in ids)
        and t.task_id not in exclude
        and (difficulty is None or t.difficulty in difficulty)
        and (split is None or t.meta.get("split") == split)
        and _in_window(t, since, until)
        and (several or not ambiguous(t))
    ]
    kept = kept[_slice(part)] if part else kept
    if n is not None and n < len(kept):
        chosen = set(random.Random(seed).sample(range(len(kept)), n))
        kept = [t for i, t in enumerate(kept) if i in chosen]
    return [_capped(t, max_tests) for t in kept] if max_tests else kept


def _in_window(task: Task, since: str | None, until: str | None) -> bool:
    if since is None and until is None:
        return True
    day = str(task.meta.get("contest_date") or "")[:10]
    return bool(day) and (since is None or day >= since) and (until is None or day <= until)


def ambiguous(task: Task) -> bool:
    """Standard output is compared with one answer while the statement allows several."""
    unchecked = any(isinstance(t, StdioTest) and t.checker is None for t in task.tests)
    return unchecked and several_answers(str(task.meta.get("question") or task.prompt))


def _slice(text: str) -> slice:
    found = re.fullmatch(r"(-?\d*):(-?\d*)", text)
    if not found:
        raise UserError(f"slice {text!r}: write it as start:stop, for example 0:100")
    return slice(*(int(x) if x else None for x in found.groups()))


def _capped(task: Task, limit: int) -> Task:
    if limit < 1:
        raise UserError(f"max_tests is {limit}; it must be 1 or more")
    visible = task.visible_tests[:limit] if not task.hidden_tests else task.visible_tests[: max(limit - 1, 0)]
    return replace(task, visible_tests=visible, hidden_tests=task.hidden_tests[: limit - len(visible)])


def with_visible(task: Task, share: float, *, seed: int = 0) -> Task:
    """The task with about `share` of its tests visible, at least one hidden; the same choice for the same seed. Tests
    visible already stay so."""
    tests = list(task.tests)
    count = min(max(round(share * len(tests)), len(task.visible_tests)), len(tests) - 1)
    others = [i for i in range(len(tests)) if i >= len(task.visible_tests)]
    random.Random(f"{seed}/{task.task_id}").shuffle(others)
    shown = set(range(len(task.visible_tests))) | set(others[: max(count - len(task.visible_tests), 0)])
    return replace(
        task,
        visible_tests=tuple(t for i, t in enumerate(tests) if i in shown),
        hidden_tests=tuple(t for i, t in enumerate(tests) if i not in shown),
    )


# ---------------------------------------------------------------- same problem?


def question_hash(task: Task) -> str:
    """A hash of the statement: case, punctuation and white space do not count."""
    words = re.findall(r"\w+", str(task.meta.get("question") or task.prompt).casefold())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def case_fingerprint(task: Task) -> str | None:
    """A hash of the first three cases; None where these are too small to tell problems apart."""
    cases = [_case(t) for t in task.tests[:FINGERPRINT_CASES]]
    cases = [c for c in cases if c]
    text = "\n".join(cases)
    return hashlib.sha256(text.encode()).hexdigest() if len(text) >= 24 else None


def _case(test: Test) -> str:
    if isinstance(test, CallTest):
        return f"{test.function.rpartition('.')[2]}{test.args!r}=={test.expected!r}"
    if isinstance(test, StdioTest):
        return " ".join(test.stdin.split()) + "=>" + " ".join(test.expected.split())
    if isinstance(test, AssertTest):
        return ast.unparse(parse(test.code))
    return test.node


def decontaminate(training: Sequence[Task], evaluation: Iterable[Task]) -> tuple[list[Task], dict[str, str]]:
    """The training tasks that are no evaluation problem, and the dropped ones: task_id -> why. A task is dropped for
    its id, the hash of its question, or the fingerprint of its first three cases."""
    by_id: dict[str, str] = {}
    by_question: dict[str, str] = {}
    by_cases: dict[str, str] = {}
    for task in evaluation:
        by_id[task.task_id] = by_question[question_hash(task)] = task.task_id
        if (mark := case_fingerprint(task)) is not None:
            by_cases[mark] = task.task_id
    kept: list[Task] = []
    dropped: dict[str, str] = {}
    for task in training:
        if task.task_id in by_id:
            dropped[task.task_id] = "same id as an evaluation problem"
        elif (other := by_question.get(question_hash(task))) is not None:
            dropped[task.task_id] = f"same question as {other}"
        elif (other := by_cases.get(case_fingerprint(task) or "")) is not None:
            dropped[task.task_id] = f"same first cases as {other}"
        else:
            kept.append(task)
    return kept, dropped


def merge(*pools: Sequence[Task]) -> tuple[list[Task], dict[str, int]]:
    """One pool of several, in order; the first of two tasks with the same id or question stays. Also how many were
    left out, by reason."""
    ids: set[str] = set()
    questions: set[str] = set()
    kept: list[Task] = []
    skipped: dict[str, int] = {}
    for task in (t for pool in pools for t in pool):
        mark = question_hash(task)
        reason = "same id" if task.task_id in ids else "same question" if mark in questions else ""
        if reason:
            skipped[reason] = skipped.get(reason, 0) + 1
            continue
        ids.add(task.task_id)
        questions.add(mark)
        kept.append(task)
    return kept, skipped


# ---------------------------------------------------------------- curriculum


@dataclass(frozen=True, kw_only=True)
class Stage:
    """From training step `step` on, tasks of these difficulties."""

    step: int
    difficulties: tuple[str, ...]


def curriculum(tasks: Sequence[Task], stages: Sequence[Stage], step: int) -> list[Task]:
    """The tasks for a training step: those of the last stage that has begun. Raises UserError where no stage has begun
    or none of the tasks has its difficulties."""
    begun = [s for s in sorted(stages, key=lambda s: s.step) if s.step <= step]
    if not begun:
        raise UserError(f"the curriculum has no stage for step {step}; let its first stage begin at 0")
    wanted = begun[-1].difficulties
    levels = {t.difficulty for t in tasks}
    for level in wanted:
        if level not in levels:
            raise unknown_name("difficulty", level, levels)
    return [t for t in tasks if t.difficulty in wanted]
