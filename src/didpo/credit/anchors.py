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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from didpo.credit.diffs import Row
from didpo.credit.matching import Candidates, Embed, Equality, candidates
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

    kind: str  # "add", "del" or "overwrite"
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
    embed_weight: float = 0.5,
) -> list[FoundAnchor]:
    """The anchors of one task, in the order chosen; [] where nothing repeats. See the head of this file.

    `equality` says what matches (see `matching`); `eta`, `embed` and its weight `embed_weight` serve "similar" alone.
    """
    found = candidates(rows, equality=equality, eta=eta, embed=embed, embed_weight=embed_weight)

    def worth(length: np.ndarray | float, n_rows: np.ndarray | float) -> np.ndarray:
        return groupability(length, n_rows, form=form, combine=combine, s0=s0, g0=g0)

    ranked = _ranked(found, worth)
    local = np.concatenate([np.arange(len(row.roots)) for row in rows]) if rows else np.zeros(0, np.int64)
    text = found.text
    out = []
    for c, start, stop in _cut(ranked, _choose(ranked, max_anchors)):
        occurrences = tuple(
            Occurrence(row=row, root=root, start=first, stop=first + size)
            for row, root, first, size in zip(
                text.rows[start].tolist(),
                local[text.root[start]].tolist(),
                text.start[start].tolist(),
                (stop - start).tolist(),
                strict=True,
            )
        )
        kind, lines = found.representative(c)
        length = float(np.mean(stop - start))
        out.append(
            FoundAnchor(
                kind=kind,
                lines=lines,
                occurrences=occurrences,
                length=length,
                n_rows=len(start),
                groupability=float(worth(length, len(start))),
            )
        )
    return out


@dataclass(frozen=True, kw_only=True)
class _Ranked:
    """Candidates with their worth. score: groupability in units of 2**-32, gain: score times the lines covered, tie:
    place in the order of the tie rule; int64 [candidates]."""

    found: Candidates
    score: np.ndarray
    gain: np.ndarray
    tie: np.ndarray
    length: np.ndarray  # mean, float64
    memory: dict[int, np.ndarray] = field(default_factory=dict)

    def lines(self, c: int) -> np.ndarray:
        """Text positions that candidate `c` covers."""
        known = self.memory.get(c)
        if known is None:
            known = self.memory[c] = _positions(*self.found.places(c))
        return known


def _ranked(found: Candidates, worth: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> _Ranked:
    runs, groups = found.runs, found.groups
    n_rows = np.concatenate([runs.n_rows, np.array([len(g.start) for g in groups], dtype=np.int64)])
    covered = np.array([int((g.stop - g.start).sum()) for g in groups], dtype=np.int64)
    covered = np.concatenate([runs.n_rows * runs.length, covered])
    by_name = sorted(range(len(groups)), key=lambda i: groups[i].name)
    place = np.empty(len(groups), dtype=np.int64)
    place[by_name] = np.arange(len(groups)) + len(found.text.symbols)  # at equal length runs go first
    place = np.concatenate([runs.left, place])
    length = covered / n_rows
    score = np.rint(worth(length, n_rows) * _UNIT).astype(np.int64)
    tie = np.empty(len(score), dtype=np.int64)
    tie[np.lexsort((place, -length, -score))] = np.arange(len(score))
    return _Ranked(found=found, score=score, gain=score * covered, tie=tie, length=length)


def _choose(ranked: _Ranked, max_anchors: int) -> list[int]:
    """Lazy greedy facility location: candidates in the order chosen. Gains only fall, so old ones are upper bounds."""
    score = ranked.score.tolist()
    best = np.zeros(len(ranked.found.text.symbols), dtype=np.int64)  # the best score chosen so far, line by line
    heap = list(zip((-ranked.gain).tolist(), ranked.tie.tolist(), range(len(score)), [0] * len(score), strict=True))
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < max_anchors:
        _, tie, c, seen = heap[0]
        lines = ranked.lines(c)
        if seen == len(chosen):
            heapq.heappop(heap)
            chosen.append(c)
            best[lines] = np.maximum(best[lines], score[c])
            continue
        gain = int(np.maximum(score[c] - best[lines], 0).sum())
        if gain:
            heapq.heapreplace(heap, (-gain, tie, c, len(chosen)))
        else:
            heapq.heappop(heap)
    return chosen


def _cut(ranked: _Ranked, chosen: list[int]) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(candidate, starts, stops) after the cut of overlaps, without those left with fewer than two rows."""
    free = np.ones(len(ranked.found.text.symbols), dtype=bool)
    left: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for c in sorted(chosen, key=lambda c: (-ranked.score[c], -ranked.length[c])):
        start, stop = ranked.found.places(c)
        bounds = np.concatenate([[0], np.cumsum(stop - start)[:-1]])
        kept = np.logical_and.reduceat(free[ranked.lines(c)], bounds)
        start, stop = start[kept], stop[kept]
        free[_positions(start, stop)] = False
        left[c] = start, stop
    return [(c, *left[c]) for c in chosen if len(left[c][0]) >= 2]


def _positions(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """All positions of the places start[k]..stop[k], one place after the other."""
    sizes = stop - start
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(start - (ends - sizes), sizes)
