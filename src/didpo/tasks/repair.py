"""Generated repair tasks: a file of small functions, each wrong in its own way, and a short specification.

A function filters a list (and maps it, at depth 2 and more), then returns an aggregate with an arithmetic tail. Every
line has a right form and typical wrong ones (`idioms`). The tests of a function are chosen so that every other
combination of its forms fails at least one visible and one hidden test; a specification that no test can tell from a
wrong one is drawn again.

Designs: "independent", or "coordinated": a shared helper `keep(x)` may be written either way round, and every caller
must follow it (`keep(x)` or `not keep(x)`), so that a line is right only together with others.

The same arguments give the same tasks on every machine; task i does not depend on n. The combination of idioms of every
function is hashed into the train or the held-out split, so that the two share none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from didpo.errors import UserError, unknown_name
from didpo.tasks.idioms import (
    AGGREGATES,
    FILTERS,
    MAPS,
    SHARED,
    TAILS,
    Idiom,
    Stage,
    filter_stage,
    map_stage,
    return_stage,
)
from didpo.types import CallTest, StdioTest, Task, Test

PATH = "solution.py"
HELPER = "keep"
SPLITS = ("train", "heldout")
STUB = "    return 0"
_MAX_DRAWS = 200  # specifications drawn for one function before giving up
_MAX_INPUTS = 48  # inputs tried to tell its wrong forms apart

Design = Literal["independent", "coordinated"]
Faults = Literal["any", "line", "stub"]


@dataclass(frozen=True, kw_only=True)
class RepairOptions:
    """What a task looks like; together they set its difficulty.

    `depth` is the number of lines before the return. `faults`: "any" combination of wrong lines, one wrong "line" per
    function, or a "stub" that returns 0. `tests`: "call" tests each function; "stdio" runs the whole program, so that
    no test belongs to one function. `visible` and `hidden` are the least numbers of tests per function.
    """

    design: Design = "independent"
    functions: int = 3
    depth: int = 1
    faults: Faults = "any"
    tests: Literal["call", "stdio"] = "call"
    visible: int = 2
    hidden: int = 2

    def __post_init__(self) -> None:
        for name, known in (("design", get_args(Design)), ("faults", get_args(Faults)), ("tests", ("call", "stdio"))):
            if getattr(self, name) not in known:
                raise unknown_name(f"{name} of repair tasks", str(getattr(self, name)), known)
        for name, low, high in (("functions", 1, 12), ("depth", 1, 4), ("visible", 1, 8), ("hidden", 1, 8)):
            if not low <= getattr(self, name) <= high:
                raise UserError(f"repair tasks: {name} must be from {low} to {high}, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class _Function:
    """`stages` hold the lines that a response may choose from; `semantics` the same for the tests (helper inlined)."""

    name: str
    words: str
    stages: tuple[Stage, ...]
    semantics: tuple[tuple[str, ...], ...]
    composition: str
    opposite: bool = False  # coordinated: keeps what the helper's condition drops
    visible: tuple[tuple[list[int], Any], ...] = ()  # (input, expected)
    hidden: tuple[tuple[list[int], Any], ...] = ()


def repair_tasks(*, split: str = "train", n: int | None = None, seed: int = 0, **options: Any) -> list[Task]:
    """`n` (default 100) tasks. `options` are the fields of `RepairOptions`; raises `UserError` for others."""
    known = [f.name for f in dataclasses.fields(RepairOptions)]
    for name in options:
        if name not in known:
            raise unknown_name("option of repair tasks", name, known)
    if split not in SPLITS:
        raise unknown_name("split of repair tasks", split, SPLITS)
    chosen = RepairOptions(**options)
    return [_task(chosen, split, seed, i) for i in range(100 if n is None else n)]


def is_heldout(composition: str) -> bool:
    """One combination of idioms in five is kept out of training."""
    return hashlib.sha256(composition.encode()).digest()[0] % 5 == 0


def _task(options: RepairOptions, split: str, seed: int, index: int) -> Task:
    key = "/".join(str(value) for value in dataclasses.astuple(options))
    rng = random.Random(f"{key}/{split}/{seed}/{index}")  # a text seeds by its SHA-512: the same on every machine
    names = [f"f{i + 1}" for i in range(options.functions)]
    if options.design == "coordinated":
        shared: Idiom | None = rng.choice(SHARED)
        while (functions := _draw_functions(rng, names, options, split, shared)) is None:
            shared = rng.choice(SHARED)
    else:
        shared = None
        functions = _draw_functions(rng, names, options, split, None)
        assert functions is not None
    start, reference = _start_and_reference(rng, functions, shared, options)
    trailer = _trailer(names) if options.tests == "stdio" else ""
    visible, hidden = _tests(functions, options)
    helper = {} if shared is None else {HELPER: [_helper_lines(shared)]}
    return Task(
        task_id=f"repair-{options.design}{options.functions}d{options.depth}-{split}-{seed}-{index}",
        prompt="".join(f"{f.name}: {f.words}\n" for f in functions),
        files={PATH: start + trailer},
        visible_tests=visible,
        hidden_tests=hidden,
        difficulty=f"{options.design} {options.functions}x{options.depth} {options.faults}",
        reference={PATH: reference + trailer},
        meta={
            "family": "repair",
            "functions": names if options.tests == "call" else ["main"],
            "lines": helper | {f.name: [list(stage.lines) for stage in f.stages] for f in functions},
            "weakness": {f.name: [stage.weakness for stage in f.stages] for f in functions}
            | ({} if shared is None else {HELPER: [shared.weakness]}),
            "opposite": {f.name: f.opposite for f in functions if shared is not None},
            "composition": {f.name: f.composition for f in functions},
            "trailer": trailer,
        },
    )


# ---------------------------------------------------------------- one function


def _draw_functions(
    rng: random.Random, names: Sequence[str], options: RepairOptions, split: str, shared: Idiom | None
) -> list[_Function] | None:
    """Functions with different compositions of the split; None where a shared condition leaves too few."""
    functions: list[_Function] = []
    for name in names:
        for _ in range(_MAX_DRAWS):
            function = _draw(rng, name, options, shared)
            seen = any(f.composition == function.composition for f in functions)
            if seen or is_heldout(function.composition) != (split == "heldout") or not _decidable(function.semantics):
                continue
            tested = _choose_tests(rng, function, options)
            if tested is not None:
                functions.append(tested)
                break
        else:
            if shared is not None:
                return None
            raise UserError(f"repair tasks: found no {options.functions} functions that tests can tell apart")
    return functions


def _draw(rng: random.Random, name: str, options: RepairOptions, shared: Idiom | None) -> _Function:
    maps = [map_stage(m) for m in rng.sample(MAPS, options.depth - 1)]
    last = return_stage(rng.choice(AGGREGATES), rng.choice(TAILS))
    if shared is None:
        stages = (filter_stage(rng.choice(FILTERS)), *maps, last)
        words = ", ".join(stage.words for stage in stages)
        return _Function(
            name=name, words=words, stages=stages, semantics=tuple(s.lines for s in stages), composition=words
        )
    opposite = rng.random() < 0.5
    forms = [shared.right, f"not {shared.right}", shared.wrong[0], f"not {shared.wrong[0]}"]
    if opposite:
        forms[:2] = forms[1::-1]
    first = Stage(
        words=("drop " if opposite else "keep ") + shared.words,
        lines=(f"    ys = [x for x in xs if {HELPER}(x)]", f"    ys = [x for x in xs if not {HELPER}(x)]"),
        weakness=0.35,
    )
    words = ", ".join(stage.words for stage in (first, *maps, last))
    semantics = (tuple(f"    ys = [x for x in xs if {form}]" for form in forms), *(s.lines for s in (*maps, last)))
    return _Function(
        name=name,
        words=words,
        stages=(first, *maps, last),
        semantics=semantics,
        composition=words,
        opposite=opposite,
    )


def _helper_lines(shared: Idiom) -> list[str]:
    """Two right forms, then the wrong ones; a form at an odd place is the opposite of the one before it."""
    return [f"    return {no}{form}" for form in (shared.right, shared.wrong[0]) for no in ("", "not ")]


# ---------------------------------------------------------------- its tests


@lru_cache(maxsize=4096)
def _compiled(line: str) -> Callable[[list[int], list[int]], Any]:
    expression = line.strip().removeprefix("return ").removeprefix("ys = ")
    return eval(f"lambda xs, ys: {expression}")  # one of this package's own templates


def _behaviours(semantics: Sequence[Sequence[str]], xs: list[int]) -> list[Any]:
    """What each combination of lines returns for `xs`, the right one first."""
    values: list[Any] = [xs]
    for forms in semantics:
        values = [_compiled(form)(value, value) for value in values for form in forms]
    return values


@lru_cache(maxsize=4096)
def _decidable(semantics: tuple[tuple[str, ...], ...]) -> bool:
    """Whether some input tells the right combination from each of the others."""
    rng = random.Random(repr(semantics))
    alike = set(range(_combinations(semantics) - 1))
    for _ in range(_MAX_INPUTS):
        right, *others = _behaviours(semantics, _input(rng))
        alike = {i for i in alike if others[i] == right}
        if not alike:
            return True
    return False


def _combinations(semantics: Sequence[Sequence[str]]) -> int:
    return math.prod(len(forms) for forms in semantics)


def _input(rng: random.Random) -> list[int]:
    return [rng.randint(-6, 9) for _ in range(rng.randint(5, 9))]


def _choose_tests(rng: random.Random, function: _Function, options: RepairOptions) -> _Function | None:
    """The function with visible and hidden tests, each set failing every wrong combination; None where none can."""
    pool: list[tuple[int, list[int], Any]] = []  # (bit set of the combinations it fails, input, expected)
    everything = (1 << _combinations(function.semantics)) - 2
    stub = everything + 2 if options.faults == "stub" else 0
    while len(pool) < _MAX_INPUTS:
        for _ in range(12):
            xs = _input(rng)
            right, *others = _behaviours(function.semantics, xs)
            fails = sum(2 << i for i, value in enumerate(others) if value != right)
            pool.append((fails | (stub if right != 0 else 0), xs, right))
        rest = list(pool)
        visible = _cover(rest, everything | stub, options.visible)
        hidden = _cover(rest, everything | stub, options.hidden)
        if visible and hidden:
            return dataclasses.replace(function, visible=tuple(visible), hidden=tuple(hidden))
    return None


def _cover(rest: list[tuple[int, list[int], Any]], everything: int, least: int) -> list[tuple[list[int], Any]] | None:
    """Take from `rest` the inputs that fail most, at least `least`, until together they fail everything."""
    chosen: list[tuple[list[int], Any]] = []
    failed = 0
    while rest and (len(chosen) < least or failed != everything):
        best = max(rest, key=lambda row: ((row[0] & ~failed).bit_count(), row[0].bit_count()))
        if not best[0] & ~failed and failed != everything:
            return None
        rest.remove(best)
        failed |= best[0]
        chosen.append((best[1], best[2]))
    return chosen if failed == everything and len(chosen) >= least else None


def _tests(functions: Sequence[_Function], options: RepairOptions) -> tuple[tuple[Test, ...], tuple[Test, ...]]:
    if options.tests == "stdio":
        return (
            _stdio(functions, [xs for f in functions for xs, _ in f.visible], 0),
            _stdio(functions, [xs for f in functions for xs, _ in f.hidden], sum(len(f.visible) for f in functions)),
        )
    visible: list[Test] = []
    hidden: list[Test] = []
    for f in functions:
        for i, (xs, expected) in enumerate((*f.visible, *f.hidden)):
            test = CallTest(name=f"{f.name}/{i}", path=PATH, function=f.name, args=(xs,), expected=expected)
            (visible if i < len(f.visible) else hidden).append(test)
    return tuple(visible), tuple(hidden)


def _stdio(functions: Sequence[_Function], inputs: Sequence[list[int]], first: int) -> tuple[Test, ...]:
    return tuple(
        StdioTest(
            name=f"main/{first + i}",
            path=PATH,
            stdin=" ".join(map(str, xs)) + "\n",
            expected=" ".join(str(_behaviours([forms[:1] for forms in f.semantics], xs)[0]) for f in functions) + "\n",
        )
        for i, xs in enumerate(inputs)
    )


def _trailer(names: Sequence[str]) -> str:
    calls = ", ".join(f"{name}(xs)" for name in names)
    return f"xs = list(map(int, input().split()))\nprint({calls})\n"


# ---------------------------------------------------------------- its text


def function_text(name: str, lines: Sequence[str]) -> str:
    return f"def {name}({'x' if name == HELPER else 'xs'}):\n" + "".join(line + "\n" for line in lines)


def right_lines(meta: Any, name: str, helper_form: int) -> list[str]:
    """The right lines of a function; with a helper, those that follow its form (an odd form is the opposite)."""
    lines = [forms[0] for forms in meta["lines"][name]]
    if name in meta["opposite"]:
        lines[0] = meta["lines"][name][0][(helper_form % 2) ^ meta["opposite"][name]]
    return lines


def _start_and_reference(
    rng: random.Random, functions: Sequence[_Function], shared: Idiom | None, options: RepairOptions
) -> tuple[str, str]:
    helpers = [] if shared is None else _helper_lines(shared)
    form = rng.randrange(len(helpers)) if helpers else 0
    start = function_text(HELPER, [helpers[form]]) if helpers else ""
    reference = function_text(HELPER, [helpers[0]]) if helpers else ""
    for f in functions:
        right = [0] * len(f.stages)
        if shared is not None:  # which of keep(x), not keep(x) follows this form
            reference += function_text(
                f.name, [f.stages[0].lines[int(f.opposite)], *(s.lines[0] for s in f.stages[1:])]
            )
            right[0] = (form % 2) ^ f.opposite
        else:
            reference += function_text(f.name, [s.lines[0] for s in f.stages])
        start += function_text(f.name, [STUB] if options.faults == "stub" else _wrong_lines(rng, f, right, options))
    return start, reference


def _wrong_lines(rng: random.Random, f: _Function, right: list[int], options: RepairOptions) -> list[str]:
    """Lines of the function with a fault: one line other than `right`, or any combination other than it."""
    chosen = list(right)
    if options.faults == "line":
        place = rng.randrange(len(right))
        chosen[place] = rng.choice([i for i in range(len(f.stages[place].lines)) if i != right[place]])
    while chosen == right:
        chosen = [rng.randrange(len(stage.lines)) for stage in f.stages]
    return [stage.lines[i] for stage, i in zip(f.stages, chosen, strict=True)]
