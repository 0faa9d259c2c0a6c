"""The idioms that repair tasks are made of: words for the specification, one right form and typical wrong ones.

`weakness` is how often the scripted imperfect agent gets the idiom wrong; it differs from idiom to idiom, so that a
model taught by that agent has weak spots that training can find.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Idiom:
    words: str
    right: str
    wrong: tuple[str, ...]
    weakness: float


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One body line of a function: the right line first, then the wrong ones."""

    words: str
    lines: tuple[str, ...]
    weakness: float


def _idioms(*rows: tuple[str, str, tuple[str, ...], float]) -> tuple[Idiom, ...]:
    return tuple(Idiom(words=words, right=right, wrong=wrong, weakness=weak) for words, right, wrong, weak in rows)


# Which items of the list count: a condition on x.
FILTERS = _idioms(
    ("positive", "x > 0", ("x >= 0", "x < 0"), 0.25),
    ("negative", "x < 0", ("x <= 0", "x > 0"), 0.45),
    ("even", "x % 2 == 0", ("x % 2 == 1", "x // 2 == 0"), 0.2),
    ("odd", "x % 2 == 1", ("x % 2 == 0", "x // 2 == 1"), 0.5),
    ("multiple of 3", "x % 3 == 0", ("x % 3 == 1", "x // 3 == 0"), 0.35),
    ("not multiple of 3", "x % 3 != 0", ("x % 3 == 0", "x // 3 != 0"), 0.6),
    ("at least 2", "x >= 2", ("x > 2", "x <= 2"), 0.65),
    ("at least 5", "x >= 5", ("x > 5", "x <= 5"), 0.55),
    ("over 1", "x > 1", ("x >= 1", "x < 1"), 0.3),
    ("over 4", "x > 4", ("x >= 4", "x < 4"), 0.2),
    ("below 3", "x < 3", ("x <= 3", "x > 3"), 0.35),
    ("below 6", "x < 6", ("x <= 6", "x > 6"), 0.25),
    ("at most 3", "x <= 3", ("x < 3", "x >= 3"), 0.6),
    ("at most 6", "x <= 6", ("x < 6", "x >= 6"), 0.7),
    ("not 2", "x != 2", ("x == 2", "x > 2"), 0.15),
    ("not 5", "x != 5", ("x == 5", "x < 5"), 0.3),
    ("from 1 to 6", "1 <= x <= 6", ("1 < x < 6", "x <= 6"), 0.5),
    ("size over 3", "abs(x) > 3", ("x > 3", "abs(x) < 3"), 0.4),
)

# Conditions for a helper that may be written either way round: the first wrong form is not the opposite of the right.
SHARED = tuple(f for f in FILTERS if f.words not in ("even", "odd", "not multiple of 3", "not 2", "not 5"))

# What becomes of each item, at depth 2 and more: an expression in y.
MAPS = _idioms(
    ("doubled", "y * 2", ("y + 2", "y ** 2"), 0.2),
    ("squared", "y * y", ("y + y", "y * 2"), 0.35),
    ("plus 1", "y + 1", ("y - 1", "y * 1"), 0.25),
    ("minus 3", "y - 3", ("3 - y", "y + 3"), 0.45),
    ("negated", "-y", ("abs(y)", "-abs(y)"), 0.5),
    ("halved", "y // 2", ("y % 2", "y * 2"), 0.4),
    ("modulo 5", "y % 5", ("y // 5", "5 % (y or 1)"), 0.55),
)

# One number for all items: an expression in ys.
AGGREGATES = _idioms(
    ("sum", "sum(ys)", ("len(ys)", "max(ys, default=0)"), 0.15),
    ("count", "len(ys)", ("sum(ys)", "len(set(ys))"), 0.3),
    ("largest", "max(ys, default=0)", ("min(ys, default=0)", "len(ys)"), 0.1),
    ("smallest", "min(ys, default=0)", ("max(ys, default=0)", "sum(ys)"), 0.35),
    ("distinct", "len(set(ys))", ("len(ys)", "sum(set(ys))"), 0.45),
    ("squares", "sum(y * y for y in ys)", ("sum(ys)", "sum(y + y for y in ys)"), 0.4),
    ("first", "(ys or [0])[0]", ("(ys or [0])[-1]", "min(ys, default=0)"), 0.2),
    ("last", "(ys or [0])[-1]", ("(ys or [0])[0]", "max(ys, default=0)"), 0.3),
)

# Arithmetic on that number: {} stands for it, in the words too.
TAILS = _idioms(
    ("{} plus 1", "{} + 1", ("{} - 1",), 0.1),
    ("{} minus 2", "{} - 2", ("2 - {}",), 0.15),
    ("{} times 2", "{} * 2", ("{} + 2",), 0.1),
    ("{} times 3", "{} * 3", ("{} + 3",), 0.2),
    ("9 minus {}", "9 - {}", ("{} - 9",), 0.35),
)


def filter_stage(idiom: Idiom) -> Stage:
    lines = tuple(f"    ys = [x for x in xs if {form}]" for form in (idiom.right, *idiom.wrong))
    return Stage(words=idiom.words, lines=lines, weakness=idiom.weakness)


def map_stage(idiom: Idiom) -> Stage:
    lines = tuple(f"    ys = [{form} for y in ys]" for form in (idiom.right, *idiom.wrong))
    return Stage(words=idiom.words, lines=lines, weakness=idiom.weakness)


def return_stage(aggregate: Idiom, tail: Idiom) -> Stage:
    """The last line. A wrong form has either the aggregate or the tail wrong, not both."""
    forms = [tail.right.format(aggregate.right)]
    forms += [tail.right.format(wrong) for wrong in aggregate.wrong]
    forms += [wrong.format(aggregate.right) for wrong in tail.wrong]
    return Stage(
        words=tail.words.format(aggregate.words),
        lines=tuple(f"    return {form}" for form in forms),
        weakness=1 - (1 - aggregate.weakness) * (1 - tail.weakness),
    )
