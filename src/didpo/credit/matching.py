"""Which lines of the rows of a task match, and the repeated runs of them.

The changed lines of all roots become one text of symbols: equal symbols match. A run never crosses the end of a root
or a line that is not changed, and never joins edit kinds. What a symbol stands for is the `equality`:

- "exact": a normalised line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from didpo.credit.diffs import Root, Row
from didpo.credit.suffixes import Repeats, repeats

Equality = Literal["exact", "renamed", "similar"]
Embed = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Text:
    """The changed lines of all roots in one sequence of n units with a barrier after every unbroken piece.

    symbols [n]: what matches, in the order of (edit kind, text); barriers and what only one row holds stand once.
    rows [n]: index of the row. roots: all roots; root [n]: index into `roots`; start, stop [n]: the normalised lines
    of its root that a unit stands for. Barriers have start == stop.
    """

    symbols: np.ndarray
    rows: np.ndarray
    roots: tuple[Root, ...]
    root: np.ndarray
    start: np.ndarray
    stop: np.ndarray


def text_of(rows: Sequence[Row], *, equality: Equality = "exact") -> Text:
    """The text of the changed lines of `rows` (all of one task)."""
    roots = tuple(root for row in rows for root in row.roots)
    row_of_root = np.array([i for i, row in enumerate(rows) for _ in row.roots], dtype=np.int64)
    sizes = np.fromiter((len(root.lines) for root in roots), np.int64, len(roots))
    total = int(sizes.sum())
    keys = [(root.kind, line) for root in roots for line in root.lines]
    ids = dict.fromkeys(keys)
    for i, key in enumerate(ids):
        ids[key] = i
    symbols = np.fromiter(map(ids.__getitem__, keys), np.int64, total)
    root = np.repeat(np.arange(len(roots)), sizes)
    begins = np.cumsum(sizes) - sizes
    start = np.arange(total) - begins[root]
    changed = np.concatenate([r.changed for r in roots]) if roots else np.zeros(0, dtype=bool)
    return _with_barriers(list(ids), symbols, changed, roots, root, row_of_root, start, start + 1)


def repeated_runs(text: Text) -> Repeats:
    """All repeated runs of `text`, of any length, found in at least two rows."""
    return repeats(text.symbols, text.rows)


def _with_barriers(
    names: list[tuple[str, str]],
    symbols: np.ndarray,
    changed: np.ndarray,
    roots: tuple[Root, ...],
    root: np.ndarray,
    row_of_root: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
) -> Text:
    """Keep the units that can repeat, number their symbols by name, and put a barrier wherever a piece ends."""
    rows = row_of_root[root] if len(root) else root
    live = _in_two_rows(symbols, rows, changed, len(names))
    kept = np.flatnonzero(live)
    # A barrier follows a kept unit unless the next unit is kept too and of the same root.
    follows = np.zeros(len(kept), dtype=bool)
    follows[:-1] = (np.diff(kept) == 1) & (root[kept[1:]] == root[kept[:-1]])
    used = np.unique(symbols[kept])
    by_name = sorted(used.tolist(), key=names.__getitem__)
    number = np.zeros(len(names), dtype=np.int64)
    number[by_name] = np.arange(len(by_name))

    place = np.arange(len(kept)) + np.cumsum(~follows) - ~follows  # where each unit goes, barriers counted
    size = len(kept) + int((~follows).sum())
    barrier = place[~follows] + 1
    out = {name: np.zeros(size, dtype=np.int64) for name in ("symbols", "rows", "root", "start", "stop")}
    for name, values in (("rows", rows), ("root", root), ("start", start), ("stop", stop)):
        out[name][place] = values[kept]
        out[name][barrier] = values[kept][~follows]
    out["start"][barrier] = out["stop"][barrier]
    out["symbols"][place] = number[symbols[kept]]
    out["symbols"][barrier] = len(by_name) + np.arange(len(barrier))
    return Text(roots=roots, **out)


def _in_two_rows(symbols: np.ndarray, rows: np.ndarray, changed: np.ndarray, n_symbols: int) -> np.ndarray:
    """bool [n]: the changed units whose symbol is a changed unit of another row too."""
    at = np.flatnonzero(changed)
    low = np.full(n_symbols, np.iinfo(np.int64).max)
    high = np.full(n_symbols, -1)
    np.minimum.at(low, symbols[at], rows[at])
    np.maximum.at(high, symbols[at], rows[at])
    return changed & (low[symbols] < high[symbols])
