"""Groups of rollouts that look like real multi-turn edits, for measuring the credit engine.

`workload()` gives 6 tasks x 32 rollouts: about 940 rows, 740 thousand tokens, 45 thousand edited lines. A task is a
module of small functions. Every rollout repairs it over several turns, either by writing the whole file again or by
search/replace patches, with thoughts before and comments of its own in the code. Lines come from a few variants with
uneven chances, so rollouts share much, never all. Everything follows from the seed.
"""

from __future__ import annotations

import random
import re

from didpo.actions import apply, parse
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup

_TOKEN = re.compile(r"\n[ ]*| ?[A-Za-z_]{1,4}|\d{1,2}| ?[^\w\s]{1,2}|\s|.", re.DOTALL)
_NAMES = (
    *("rows", "items", "values", "total", "count", "best", "left", "right", "index"),
    *("limit", "step", "cache", "queue", "node", "edge", "weight", "path", "depth"),
)
_REMARKS = (
    "keep the order of the input",
    "the empty case first",
    "counts from one",
    "was off by one",
    "see the statement",
    "skip what is seen",
)
_THOUGHTS = (
    "The failing test calls the function with an empty list, so the loop never runs.",
    "The bound must include the last element; the comparison is wrong by one.",
    "I will rewrite the helper and keep the rest of the module as it is.",
    "Let me look at the order of the operations again before changing anything.",
)


def _variants(rng: random.Random) -> list[str]:
    """The ways to write one line: the usual one, its mistakes and restatements."""
    a, b, c = rng.sample(_NAMES, 3)
    n = rng.randint(0, 9)
    return rng.choice(
        [
            [f"{a} = {b}[{n}:]", f"{a} = {b}[{n + 1}:]", f"{a} = list({b}[{n}:])"],
            [f"if {a} < {b}:", f"if {a} <= {b}:", f"if not {a} >= {b}:"],
            [f"{a} += {b} * {n}", f"{a} += {b} + {n}", f"{a} = {a} + {b} * {n}"],
            [f"for {a}, {c} in enumerate({b}):", f"for {a} in range(len({b})):", f"for {a}, {c} in enumerate({b}, 1):"],
            [f"{a}.append(({b}, {c}))", f"{a}.append({b})", f"{a} = [*{a}, ({b}, {c})]"],
            [f'{a} = "{b} # {n}"', f"{a} = '{b} # {n}'", f'{a} = f"{b} {{{c}}}"'],
            [f"{a} = max({b}, {c} - {n})", f"{a} = min({b}, {c} - {n})", f"{a} = max({b}, {c})"],
            [f"{a} = sorted({b}, key={c})", f"{a} = sorted({b})", f"{a} = sorted({b}, key={c}, reverse=True)"],
        ]
    )


class _Module:
    """A task's module: for every function the variants of every line."""

    def __init__(self, rng: random.Random, functions: int, lines: int) -> None:
        self.functions = [
            (f"solve_{i}", [(_variants(rng), rng.randint(1, 2)) for _ in range(lines + rng.randint(-2, 2))])
            for i in range(functions)
        ]

    def function(self, rng: random.Random, i: int) -> list[str]:
        name, body = self.functions[i]
        out = [f"def {name}({_NAMES[i]}, {_NAMES[i + 1]}):"]
        for variants, depth in body:
            line = "    " * depth + rng.choices(variants, (6, 3, 1))[0]
            if rng.random() < 0.05:
                line += f" + {rng.randint(10, 99)}"
            if line.endswith(":"):
                out += [line, "    " * (depth + 1) + "pass"]
            else:
                out.append(line)
            if rng.random() < 0.15:
                out[-1] += f"  # {rng.choice(_REMARKS)}"
            if rng.random() < 0.06:
                out.append("    " * depth + f"# {rng.choice(_REMARKS)}")
        return [*out, f"    return {_NAMES[i]}", ""]


def _offsets(text: str) -> list[tuple[int, int]]:
    return [*(m.span() for m in _TOKEN.finditer(text)), (len(text), len(text))]


def _rollout(rng: random.Random, module: _Module, turns: float) -> Trajectory:
    functions = list(range(len(module.functions)))
    code = [["def " + module.functions[i][0] + "(*args):", "    raise NotImplementedError", ""] for i in functions]
    files = {"solution.py": "\n".join(line for part in code for line in part) + "\n"}
    steps = []
    for turn in range(max(1, round(rng.gauss(turns, 1.2)))):
        touched = functions if turn == 0 else rng.sample(functions, rng.randint(1, 3))
        new = [module.function(rng, i) if i in touched else code[i] for i in functions]
        thought = "\n".join(rng.sample(_THOUGHTS, rng.randint(1, 3)))
        if turn == 0 or rng.random() < 0.65:
            text = "\n".join(line for part in new for line in part) + "\n"
            body = f"<edit solution.py>\n<code>\n{text}</code>\n</edit>"
        else:
            pairs = [
                "<search>\n{}\n</search>\n<replace>\n{}\n</replace>\n".format("\n".join(code[i]), "\n".join(new[i]))
                for i in touched
            ]
            body = "<edit solution.py>\n" + "".join(pairs) + "</edit>"
        response = f"<think>\n{thought}\n</think>\n{body}"
        applied = apply(parse(response), files)
        assert applied.error is None, applied.error
        code = new
        tests = {f"{module.functions[i][0]}/{j}": rng.random() < 0.3 + 0.1 * turn for i in functions for j in range(3)}
        score = sum(tests.values()) / len(tests)
        steps.append(
            Step(
                response=response,
                reward=0.15 * score,
                files_before=files,
                files_after=applied.files,
                token_offsets=_offsets(response),
                step_score=score,
                test_outcomes=tests,
                action="edit",
                finish_reason="stop",
            )
        )
        files = applied.files
    solved = rng.random() < 0.4
    steps[-1].reward = (steps[-1].reward or 0.0) + solved
    return Trajectory(steps=steps, outcome=float(solved), stop_reason=StopReason.FINISHED)


def workload(
    *, tasks: int = 6, rollouts: int = 32, turns: float = 4.9, functions: int = 5, lines: int = 9, seed: int = 0
) -> list[TrajectoryGroup]:
    """`tasks` groups of `rollouts` rollouts."""
    groups = []
    for t in range(tasks):
        rng = random.Random(f"{seed}/{t}")
        module = _Module(rng, functions, lines)
        rolled = [_rollout(rng, module, turns) for _ in range(rollouts)]
        groups.append(TrajectoryGroup(task_id=f"task-{t}", trajectories=rolled))
    return groups


def size_of(groups: list[TrajectoryGroup]) -> dict[str, int]:
    """Rows, tokens and edited lines of `groups`."""
    from didpo.credit.diffs import rows_of

    steps = [s for g in groups for t in g.trajectories for s in t.steps]
    roots = [root for g in groups for row in rows_of(g) for root in row.roots]
    return {
        "rows": len(steps),
        "tokens": sum(s.n_tokens for s in steps),
        "lines": sum(len(root.lines) for root in roots),
        "changed_lines": sum(int(root.changed.sum()) for root in roots),
    }
