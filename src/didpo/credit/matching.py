"""Which fragments of the rows of a task match: every repeated run of changed lines, at every scale.

The changed lines of all roots become one text of symbols: equal symbols match. A run never crosses the end of a root
or a line that is not changed, and edit kinds are never joined. What matches is the `equality`:

- "exact": runs of equal normalised lines;
- "renamed": these, and whole functions that are equal up to layout and the names of local variables (`canonical`);
  parts of functions match only where they are spelled alike, since the same part may mean something else elsewhere;
- "similar": runs of similar lines, and blocks of similar text, every one at least `eta` like its representative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from didpo.credit.diffs import Root, Row
from didpo.credit.suffixes import Repeats, repeats
from didpo.errors import unknown_name

if TYPE_CHECKING:
    from didpo.credit.near import Near

Equality = Literal["exact", "renamed", "similar"]
Embed = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Text:
    """The changed lines of all roots in one sequence of n places with a barrier after every unbroken piece.

    symbols [n]: equal ones match; in the order of (edit kind, line), barriers last, each of its own. rows [n]: index of
    the row. roots: all roots; root [n]: index into them; start [n]: index of the normalised line in its root; line [n]:
    its number among the lines of all roots. A barrier carries the place of the line before it.
    """

    symbols: np.ndarray
    rows: np.ndarray
    roots: tuple[Root, ...]
    root: np.ndarray
    start: np.ndarray
    line: np.ndarray

    def content(self, at: int, length: int) -> tuple[str, tuple[str, ...]]:
        """Edit kind and the `length` normalised lines from text position `at`."""
        root = self.roots[self.root[at]]
        first = int(self.start[at])
        return root.kind, root.lines[first : first + length]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A set of matching places in a `Text`: positions start[k]..stop[k] (stop excluded), one place per row, ascending.

    `name` (edit kind, lines of the representative) orders groups that are otherwise level.
    """

    start: np.ndarray
    stop: np.ndarray
    name: tuple[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """All that may become an anchor: repeated runs of equal symbols, groups found in other ways, and similar blocks.

    The groups are numbered after the runs. Similar blocks are found on demand (see `near`), so they have no number.
    """

    text: Text
    runs: Repeats
    groups: tuple[Group, ...] = ()
    near: Near | None = None

    def places(self, c: int) -> tuple[np.ndarray, np.ndarray]:
        """Text positions (start, stop) of candidate `c`, one place per row."""
        n_runs = len(self.runs.length)
        if c < n_runs:
            start = self.runs.places(c)
            return start, start + self.runs.length[c]
        group = self.groups[c - n_runs]
        return group.start, group.stop

    def representative(self, c: int) -> tuple[str, tuple[str, ...]]:
        """Edit kind and lines of candidate `c`."""
        n_runs = len(self.runs.length)
        if c >= n_runs:
            return self.groups[c - n_runs].name
        return self.text.content(int(self.runs.order[self.runs.left[c]]), int(self.runs.length[c]))


def candidates(
    rows: Sequence[Row],
    *,
    equality: Equality = "exact",
    eta: float = 0.8,
    embed: Embed | None = None,
    embed_weight: float = 0.5,
) -> Candidates:
    """Everything that matches across `rows` (all of one task), at all scales."""
    from didpo.credit import alike, near  # build on this module

    if equality not in get_args(Equality):
        raise unknown_name("equality", equality, get_args(Equality))
    lines = Lines.of(rows)
    if equality == "similar":
        return near.similar_candidates(lines, eta=eta, embed=embed, embed_weight=embed_weight)
    functions = alike.renamed_functions(lines) if equality == "renamed" else []
    text = lines.text(lines.symbols, lines.names, also=np.unique([i for f in functions for i in f.lines]))
    groups = tuple(alike.placed(text, f) for f in functions)
    return Candidates(text=text, runs=repeats(text.symbols, text.rows), groups=groups)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The lines of all roots, one after the other. names: symbol -> (edit kind, line); root, start: where a line is."""

    roots: tuple[Root, ...]
    names: list[tuple[str, str]]
    symbols: np.ndarray
    changed: np.ndarray
    root: np.ndarray
    rows: np.ndarray
    start: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Lines:
        roots = tuple(root for row in rows for root in row.roots)
        row_of_root = np.array([i for i, row in enumerate(rows) for _ in row.roots], dtype=np.int64)
        sizes = np.fromiter((len(root.lines) for root in roots), np.int64, len(roots))
        total = int(sizes.sum())
        keys = [(root.kind, line) for root in roots for line in root.lines]
        ids = dict.fromkeys(keys)
        numbers = dict(zip(ids, range(len(ids)), strict=True))
        root = np.repeat(np.arange(len(roots)), sizes)
        return cls(
            roots=roots,
            names=list(ids),
            symbols=np.fromiter(map(numbers.__getitem__, keys), np.int64, total),
            changed=np.concatenate([r.changed for r in roots]) if roots else np.zeros(0, dtype=bool),
            root=root,
            rows=row_of_root[root] if len(roots) else root,
            start=np.arange(total) - (np.cumsum(sizes) - sizes)[root],
        )

    def text(self, symbols: np.ndarray, names: list[tuple[str, str]], also: np.ndarray) -> Text:
        """The changed lines that can repeat, and the lines `also`, as a text of `symbols` ordered by `names`."""
        return _with_barriers(self, symbols, names, also.astype(np.int64))


def _with_barriers(lines: Lines, symbols: np.ndarray, names: list[tuple[str, str]], also: np.ndarray) -> Text:
    """Number the symbols by name and put a barrier wherever an unbroken piece ends."""
    live = _in_two_rows(symbols, lines.rows, lines.changed, len(names))
    live[also] = True
    kept = np.flatnonzero(live)
    # A barrier follows a kept line unless the next line is kept too and of the same root.
    follows = np.zeros(len(kept), dtype=bool)
    follows[:-1] = (np.diff(kept) == 1) & (lines.root[kept[1:]] == lines.root[kept[:-1]])
    by_name = sorted(np.unique(symbols[kept]).tolist(), key=names.__getitem__)
    number = np.zeros(len(names), dtype=np.int64)
    number[by_name] = np.arange(len(by_name))

    place = np.arange(len(kept)) + np.cumsum(~follows) - ~follows  # where each line goes, barriers counted
    barrier = place[~follows] + 1
    size = len(kept) + len(barrier)
    out_symbols = np.empty(size, dtype=np.int64)
    line = np.empty(size, dtype=np.int64)
    out_symbols[place] = number[symbols[kept]]
    out_symbols[barrier] = len(by_name) + np.arange(len(barrier))
    line[place] = kept
    line[barrier] = kept[~follows]
    return Text(
        symbols=out_symbols,
        rows=lines.rows[line],
        roots=lines.roots,
        root=lines.root[line],
        start=lines.start[line],
        line=line,
    )


def _in_two_rows(symbols: np.ndarray, rows: np.ndarray, changed: np.ndarray, n_symbols: int) -> np.ndarray:
    """bool [n]: the changed units whose symbol is a changed unit of another row too."""
    at = np.flatnonzero(changed)
    low = np.full(n_symbols, np.iinfo(np.int64).max)
    high = np.full(n_symbols, -1)
    np.minimum.at(low, symbols[at], rows[at])
    np.maximum.at(high, symbols[at], rows[at])
    return changed & (low[symbols] < high[symbols])
