"""A scripted agent for repair tasks: as skilled as asked, it writes the responses that a model is first taught on.

It knows the forms of every line. It keeps functions whose visible tests pass and writes the others anew, getting each
idiom wrong as often as the idiom's weakness says: at skill 0.5 exactly that often, at 1 never, at 0 twice as often.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from didpo.actions import apply, parse
from didpo.errors import UserError
from didpo.tasks.repair import HELPER, PATH, function_text, right_lines
from didpo.types import CallTest, Files, StdioTest, Task

Style = Literal["rewrite", "patch"]
COLD_START_SKILL = 0.5
_FUNCTION = re.compile(r"^def (\w+)\(\w*\):\n((?:    .*\n)*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ScriptedTurn:
    """One turn of the scripted agent; it can stand in the history that an agent's prompt is made from.

    `shown` and `observation` are what the environment shows after the turn, `files` the workspace before it.
    """

    files: Files
    response: str
    observation: str
    shown: dict[str, bool]
    solved: bool
    error: str | None = None


def scripted_response(
    task: Task,
    files: Files,
    outcomes: Mapping[str, bool] | None,
    rng: random.Random,
    skill: float = COLD_START_SKILL,
    *,
    style: Style = "rewrite",
) -> str:
    """One response. `outcomes` of the tests that the agent has seen, None before the first turn.

    `style` "rewrite" overwrites the whole file; "patch" searches and replaces the lines that change.
    """
    if task.meta.get("family") != "repair":
        raise UserError(f"task {task.task_id} is not a generated repair task: there is no scripted agent for it")
    old = {name: body.splitlines() for name, body in _FUNCTION.findall(files[PATH])}
    new: dict[str, list[str]] = {}
    passing = {name for name in task.meta["lines"] if _passes(name, outcomes)}
    form = 0
    if HELPER in task.meta["lines"]:
        forms: list[str] = task.meta["lines"][HELPER][0]
        kept = old.get(HELPER, [""])[0]
        if passing and kept in forms:
            form = forms.index(kept)
        else:
            form = rng.randrange(2) + 2 * (rng.random() < _error(task.meta["weakness"][HELPER][0], skill))
        new[HELPER] = [forms[form]]
    for name in task.meta["lines"]:
        if name == HELPER:
            continue
        if name in passing and name in old and rng.random() >= 0.06 * (1 - skill):
            new[name] = old[name]
        else:
            new[name] = _write(task.meta, name, form, rng, skill)
    if style == "patch":
        return _patch(old, new, files[PATH])
    code = "".join(function_text(name, lines) for name, lines in new.items()) + task.meta["trailer"]
    return f"<edit {PATH}>\n<code>\n{code}</code>\n</edit>"


def scripted_expert(task: Task, files: Files, *, style: Style = "rewrite") -> str:
    """The response that solves the task."""
    return scripted_response(task, files, None, random.Random(0), skill=1.0, style=style)


def scripted_trajectory(
    task: Task,
    rng: random.Random,
    skill: float = COLD_START_SKILL,
    *,
    max_turns: int = 3,
    style: Style = "rewrite",
    feedback: bool = True,
) -> list[ScriptedTurn]:
    """Turns until the task is solved or the turns are used up. Verdicts come from `known_outcomes`, without a sandbox.

    `feedback` False: the agent is not shown verdicts (`shown` is empty), and writes every function anew each turn.
    """
    files: dict[str, str] = dict(task.files)
    turns: list[ScriptedTurn] = []
    shown: dict[str, bool] | None = None
    while len(turns) < max_turns and not (turns and turns[-1].solved):
        response = scripted_response(task, files, shown or None, rng, skill, style=style)
        applied = apply(parse(response), files)
        assert applied.error is None, applied.error
        outcomes = known_outcomes(task, applied.files)
        shown = {test.name: outcomes[test.name] for test in task.visible_tests} if feedback else {}
        turns.append(
            ScriptedTurn(
                files=files,
                response=response,
                observation="The edit was applied.\n",
                shown=shown,
                solved=all(outcomes.values()),
            )
        )
        files = applied.files
    return turns


def known_outcomes(task: Task, files: Files) -> dict[str, bool]:
    """The outcome of every test, found in this process; only for files made of the task's own lines.

    Raises ValueError for any other text: that needs a sandbox.
    """
    known = {line for stages in task.meta["lines"].values() for forms in stages for line in forms}
    known |= {f"def {name}({'x' if name == HELPER else 'xs'}):" for name in task.meta["lines"]}
    known |= {*task.files[PATH].splitlines(), *task.meta["trailer"].splitlines()}
    if set(files) != {PATH} or not known.issuperset(files[PATH].split("\n")[:-1]) or not files[PATH].endswith("\n"):
        raise ValueError("the files hold lines that are not the task's own")
    code = compile(files[PATH].removesuffix(task.meta["trailer"]), PATH, "exec")
    names: dict[str, Any] = {}
    exec(code, names)  # the generator's own templates, each line checked above
    outcomes = {}
    for test in task.tests:
        if isinstance(test, CallTest):
            outcomes[test.name] = _returns(names, test.function, test.args[0]) == test.expected
        else:
            assert isinstance(test, StdioTest)
            xs = [int(word) for word in test.stdin.split()]
            values = [_returns(names, name, xs) for name in task.meta["lines"] if name != HELPER]
            outcomes[test.name] = " ".join(map(str, values)) == test.expected.strip()
    return outcomes


def _returns(names: dict[str, Any], function: str, xs: list[int]) -> Any:
    try:
        return names[function](list(xs))
    except (TypeError, NameError, KeyError, ArithmeticError) as error:  # a wrong form may raise: no value equals that
        return error


def _passes(name: str, outcomes: Mapping[str, bool] | None) -> bool:
    own = [ok for test, ok in (outcomes or {}).items() if test.startswith(f"{name}/")]
    return bool(own) and all(own)


def _error(weakness: float, skill: float) -> float:
    return min(0.95, 2 * (1 - skill) * weakness)


def _write(meta: Mapping[str, Any], name: str, form: int, rng: random.Random, skill: float) -> list[str]:
    """The lines of a function, each wrong at the rate of its idiom."""
    lines = right_lines(meta, name, form)
    for i, forms in enumerate(meta["lines"][name]):
        if rng.random() < _error(meta["weakness"][name][i], skill):
            lines[i] = rng.choice([line for line in forms if line != lines[i]])
    return lines


def _patch(old: Mapping[str, list[str]], new: Mapping[str, list[str]], text: str) -> str:
    """Search and replace of the lines that differ; with lines above them until the place is the only one."""
    pairs = ""
    for name, lines in new.items():
        before, after = function_text(name, old.get(name, [])), function_text(name, lines)
        if before == after or name not in old:
            continue
        was, now = before.splitlines(keepends=True), after.splitlines(keepends=True)
        first, last = 0, 0  # lines that both share at the top and at the bottom
        while first < min(len(was), len(now)) and was[first] == now[first]:
            first += 1
        while last < min(len(was), len(now)) - first and was[-1 - last] == now[-1 - last]:
            last += 1
        while first and (first == len(was) - last or _places("".join(was[first : len(was) - last]), text) != 1):
            first -= 1
        search, replace = "".join(was[first : len(was) - last]), "".join(now[first : len(now) - last])
        pairs += f"<search>\n{search}</search>\n<replace>\n{replace}</replace>\n"
        text = text.replace(search, replace, 1)
    if not pairs:  # nothing to change: the first line as it is
        line = text[: text.index("\n") + 1]
        pairs = f"<search>\n{line}</search>\n<replace>\n{line}</replace>\n"
    return f"<edit {PATH}>\n{pairs}</edit>"


def _places(search: str, text: str) -> int:
    return sum(text.startswith(search, i) for i in range(len(text)))
