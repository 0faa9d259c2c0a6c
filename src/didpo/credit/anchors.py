"""Anchors: the shared fragments of a task's edits, chosen by groupability.

Candidates are all repeated runs of changed lines, at every scale. A place counts line by line: the objective is the sum
over the changed lines of all rows of the best groupability among the chosen anchors that cover the line, and a chosen
anchor covers one place per row, the first. Greedy choice, at most `max_anchors`, until no anchor adds anything.
Then per root overlapping places are cut (higher groupability first, then longer, then the earlier chosen); anchors left
with fewer than two rows are dropped, and groupability is computed again from what is left.

Ties in the greedy choice go to the higher groupability, then the longer anchor, then the smaller (edit kind, lines).
Gains are summed as integers (groupability in units of 2**-32), so neither the order of rows nor rounding decides.

The gate enters before matching: a run consists of changed lines only, so text that an action merely writes again is in
no anchor, does not count as a row of one, and earns nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from didpo.credit.diffs import Row
from didpo.credit.matching import Embed, Equality, Text, repeated_runs, text_of
from didpo.credit.suffixes import Repeats
from didpo.errors import unknown_name

Form = Literal["exp", "log", "linear"]
Combine = Literal["product", "sum"]

_UNIT = 2.0**32


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """Normalised lines start..stop (stop excluded) of root `root` of row `row`; both are indices into the rows."""

    row: int
    root: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class FoundAnchor:
    """A fragment that at least two rows share: the representative's `lines`, mean `length` L in lines."""

    kind: Literal["add", "del", "overwrite"]
    lines: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]  # in the order of rows, at most one per row
    length: float
    n_rows: int
    groupability: float


def groupability(
    length: np.ndarray | float,
    n_rows: np.ndarray | float,
    *,
    form: Form = "exp",
    combine: Combine = "product",
    s0: float = 8.0,
    g0: float = 8.0,
) -> np.ndarray:
    """GS of anchors of mean length `length` (lines) in `n_rows` rows: phi(L) * psi(n), elementwise float64.

    exp: phi = 1 - exp(-L/s0), psi = 1 - exp(-(n-1)/g0). log: phi = min(1, ln(1+L)/ln(1+s0)),
    psi = min(1, ln n/ln max(2, g0)). linear: phi = min(1, L/s0), psi = min(1, (n-1)/(g0-1)). psi(1) = 0 always.
    combine="sum" gives phi + psi, the paper's ablation.
    """
    size = np.asarray(length, dtype=np.float64)
    n = np.asarray(n_rows, dtype=np.float64)
    if form == "exp":
        phi, psi = -np.expm1(-size / s0), -np.expm1(-(n - 1) / g0)
    elif form == "log":
        phi = np.minimum(1.0, np.log1p(size) / np.log1p(s0))
        psi = np.minimum(1.0, np.log(np.maximum(n, 1.0)) / np.log(max(2.0, g0)))
    elif form == "linear":
        phi = np.minimum(1.0, size / s0)
        psi = np.minimum(1.0, (n - 1) / max(g0 - 1, 1.0))
    else:
        raise unknown_name("groupability form", form, ("exp", "log", "linear"))
    if combine == "product":
        return phi * psi
    if combine == "sum":
        return phi + psi
    raise unknown_name("groupability combination", combine, ("product", "sum"))


def find_anchors(
    rows: Sequence[Row],
    *,
    eta: float = 0.8,
    equality: Equality = "exact",
    form: Form = "exp",
    combine: Combine = "product",
    s0: float = 8.0,
    g0: float = 8.0,
    max_anchors: int = 64,
    embed: Embed | None = None,
) -> list[FoundAnchor]:
    """The anchors of one task, in the order chosen; [] where nothing repeats. See the head of this file."""
    text = text_of(rows, equality=equality)
    runs = repeated_runs(text)
    score = groupability(runs.length, runs.n_rows, form=form, combine=combine, s0=s0, g0=g0)
    chosen = _choose(runs, np.rint(score * _UNIT).astype(np.int64), len(text.symbols), max_anchors)
    kept = _cut(text, runs, score, chosen)
    local = np.concatenate([np.arange(len(row.roots)) for row in rows]) if rows else np.zeros(0, np.int64)
    out = []
    for c, places in kept:
        size = int(runs.length[c])
        n = len(places)
        occurrences = tuple(
            Occurrence(row=row, root=int(local[root]), start=start, stop=stop)
            for row, root, start, stop in zip(
                text.rows[places].tolist(),
                text.root[places].tolist(),
                text.start[places].tolist(),
                text.stop[places + size - 1].tolist(),
                strict=True,
            )
        )
        root = text.roots[text.root[places[0]]]
        out.append(
            FoundAnchor(
                kind=root.kind,
                lines=root.lines[occurrences[0].start : occurrences[0].stop],
                occurrences=occurrences,
                length=float(size),
                n_rows=n,
                groupability=float(groupability(size, n, form=form, combine=combine, s0=s0, g0=g0)),
            )
        )
    return out


def _choose(runs: Repeats, score: np.ndarray, n: int, max_anchors: int) -> list[int]:
    """Lazy greedy facility location: classes in the order chosen. score: int64 [classes]; n: length of the text."""
    best = np.zeros(n, dtype=np.int64)  # the best score among chosen anchors, line by line
    gain = score * runs.length * runs.n_rows
    order = np.lexsort((runs.left, -runs.length, -score, -gain))
    # The place in this order of the tie rule alone, to compare candidates whose gain has shrunk to the same value.
    rank = np.empty(len(gain), dtype=np.int64)
    rank[np.lexsort((runs.left, -runs.length, -score))] = np.arange(len(gain))
    heap = [(-int(gain[c]), int(rank[c]), int(c), 0) for c in order]  # sorted, hence a heap
    lines: dict[int, np.ndarray] = {}
    chosen: list[int] = []
    while heap and len(chosen) < max_anchors:
        _, tie, c, seen = heap[0]
        if seen == len(chosen):
            heapq.heappop(heap)
            chosen.append(c)
            best[lines_of(runs, c, lines)] = np.maximum(best[lines_of(runs, c, lines)], score[c])
            continue
        worth = int(np.maximum(score[c] - best[lines_of(runs, c, lines)], 0).sum())
        if worth:
            heapq.heapreplace(heap, (-worth, tie, c, len(chosen)))
        else:
            heapq.heappop(heap)
    return chosen


def lines_of(runs: Repeats, c: int, memory: dict[int, np.ndarray]) -> np.ndarray:
    """Text positions that class `c` covers, [n_rows * length]."""
    known = memory.get(c)
    if known is None:
        known = memory[c] = (runs.places(c)[:, None] + np.arange(runs.length[c])).ravel()
    return known


def _cut(text: Text, runs: Repeats, score: np.ndarray, chosen: list[int]) -> list[tuple[int, np.ndarray]]:
    """(class, places left) of the chosen classes after the cut of overlaps, without those left with one row."""
    free = np.ones(len(text.symbols), dtype=bool)
    left: dict[int, np.ndarray] = {}
    by_score = sorted(range(len(chosen)), key=lambda i: (-score[chosen[i]], -runs.length[chosen[i]], i))
    for i in by_score:
        c = chosen[i]
        places = runs.places(c)
        spans = places[:, None] + np.arange(runs.length[c])
        places = places[free[spans].all(axis=1)]
        free[places[:, None] + np.arange(runs.length[c])] = False
        left[c] = places
    return [(c, left[c]) for c in chosen if len(left[c]) >= 2]
