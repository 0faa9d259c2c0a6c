"""Anchors: the shared fragments of a task's edits, chosen by groupability.

Candidates are all repeated runs of changed lines, at every scale. A place counts line by line: the objective is the sum
over the changed lines of all rows of the best groupability among the chosen anchors that cover the line, and a chosen
anchor covers one place per row, the first. Greedy choice, at most `max_anchors`, until no anchor adds anything.
Then per root overlapping places are cut (higher groupability first, then longer, then the earlier chosen); anchors left
with fewer than two rows are dropped, and groupability is computed again from what is left. A place is kept or cut as a
whole, never trimmed: what a cut leaves beside the winner (the body under a shared `def` line, say) has no anchor,
because a remainder is another fragment than the one that was chosen and its groupability would not be the chosen one's.

Ties in the greedy choice go to the higher groupability, then the longer anchor, then the smaller (edit kind, lines).
Gains are summed as integers (groupability in units of 2**-32), so neither the order of rows nor rounding decides.

The gate enters before matching: a run consists of changed lines only, so text that an action merely writes again is in
no anchor, does not count as a row of one, and earns nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from didpo.credit.diffs import Row
from didpo.credit.matching import Candidates, Embed, Equality, Group, candidates
from didpo.credit.near import Reach
from didpo.errors import unknown_name

Form = Literal["exp", "log", "linear"]
Combine = Literal["product", "sum"]

_UNIT = 2.0**32
_MOST_TOTALS = 128  # remembered at a time: bounds memory
_BY_SIZE, _BY_LEADERS, _KNOWN = 0, 1, 2  # what is known of a candidate in the greedy choice


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

    ranked = _Ranked(found, worth)
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
        kind, lines = ranked.representative(c)
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


class _Ranked:
    """Candidates with their worth. Numbers: those of `Candidates`, then one per representative of `found.near`.

    score: groupability in units of 2**-32, length: mean lines, place: order among equals by content; [numbers]. For a
    representative score and length are upper bounds until `evaluate` has found its group.
    """

    def __init__(self, found: Candidates, worth: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        self.found, self.near, self.worth = found, found.near, worth
        runs, groups = found.runs, found.groups
        self.first_near = len(runs.length) + len(groups)
        n_heads = len(found.near.heads) if found.near else 0
        n_rows = np.concatenate([runs.n_rows, np.array([len(g.start) for g in groups], dtype=np.int64)])
        covered = np.array([int((g.stop - g.start).sum()) for g in groups], dtype=np.int64)
        covered = np.concatenate([runs.n_rows * runs.length, covered])
        by_name = sorted(range(len(groups)), key=lambda i: groups[i].name)
        place = np.empty(len(groups), dtype=np.int64)
        place[by_name] = np.arange(len(groups))
        rest = np.arange(n_heads)  # in the order of names; never beside `groups`
        after_runs = len(found.text.symbols)  # at equal length runs go first
        self.place = np.concatenate([runs.left, place + after_runs, rest + after_runs])
        length = covered / n_rows
        self.score = np.append(self._units(length, n_rows), np.zeros(n_heads, dtype=np.int64))
        self.length = np.append(length, np.zeros(n_heads))
        self.covered = covered
        self.reach: dict[int, Reach] = {}  # what is known of representatives without a group
        self.groups: dict[int, Group] = {}
        self.memory: dict[int, np.ndarray] = {}
        self.limits: dict[tuple[int, int], int] = {}

    def _units(self, length: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
        return np.rint(self.worth(length, n_rows) * _UNIT).astype(np.int64)

    def _limit(self, c: int, reach: Reach | None) -> bool:
        """Sets the upper bounds of representative `c`; False where it has no group."""
        if reach is None:
            self.reach.pop(c, None)
            return False
        self.reach[c] = reach
        key = reach.length, reach.n_rows
        if key not in self.limits:
            self.limits[key] = int(self._units(np.array([float(reach.length)]), np.array([reach.n_rows]))[0])
        self.score[c] = self.limits[key]
        return True

    def queue(self) -> list[tuple[int, int, tuple[int, float, int], int, int]]:
        """Everything as (-gain or a bound of it, state, tie, number, anchors chosen so far), not yet ordered."""
        gain = (self.score[: self.first_near] * self.covered).tolist()
        out = [(-g, _KNOWN, self.tie(c), c, 0) for c, g in enumerate(gain)]
        if self.near is not None:
            for h in range(len(self.near.heads)):
                c, reach = self.first_near + h, self.near.by_size(h)
                if reach is not None and self._limit(c, reach):
                    out.append((-int(self.score[c]) * reach.covered, _BY_SIZE, self.tie(c), c, 0))
        return out

    def tie(self, c: int) -> tuple[int, float, int]:
        return -int(self.score[c]), -float(self.length[c]), int(self.place[c])

    def refine(self, c: int, state: int) -> bool:
        """Learns more of representative `c`; False where it has no group."""
        assert self.near is not None
        h = c - self.first_near
        if state == _BY_SIZE:
            return self._limit(c, self.near.by_leaders(h))
        group = self.near.group(h, self.reach.pop(c))
        if group is None:
            return False
        self.groups[c] = group
        covered, n_rows = int((group.stop - group.start).sum()), len(group.start)
        self.length[c] = covered / n_rows
        self.score[c] = int(self._units(self.length[c : c + 1], np.array([n_rows]))[0])
        return True

    def gain(self, c: int, reached: _Reached) -> int:
        """What `c` adds, or at most adds, to what the lines have reached."""
        score = int(self.score[c])
        if c in self.reach:
            return self.reach[c].gain(score, reached.total(score))
        return int(np.maximum(score - reached.best[self.lines(c)], 0).sum())

    def places(self, c: int) -> tuple[np.ndarray, np.ndarray]:
        """Text positions (start, stop) of candidate `c`, one place per row."""
        if c < self.first_near:
            return self.found.places(c)
        return self.groups[c].start, self.groups[c].stop

    def representative(self, c: int) -> tuple[str, tuple[str, ...]]:
        """Edit kind and lines of candidate `c`."""
        return self.found.representative(c) if c < self.first_near else self.groups[c].name

    def lines(self, c: int) -> np.ndarray:
        """Text positions that candidate `c` covers."""
        known = self.memory.get(c)
        if known is None:
            known = self.memory[c] = _positions(*self.places(c))
        return known


class _Reached:
    """The best score chosen so far, line by line; best: int64 [n]."""

    def __init__(self, n: int) -> None:
        self.best = np.zeros(n, dtype=np.int64)
        self.totals: dict[int, np.ndarray] = {}

    def lift(self, lines: np.ndarray, score: int) -> None:
        self.best[lines] = np.maximum(self.best[lines], score)
        self.totals.clear()

    def total(self, score: int) -> np.ndarray:
        """What all lines before each position would add with `score`, int64 [n + 1]."""
        if score not in self.totals:
            if len(self.totals) >= _MOST_TOTALS:
                self.totals.clear()
            self.totals[score] = np.append(0, np.cumsum(np.maximum(score - self.best, 0)))
        return self.totals[score]


def _choose(ranked: _Ranked, max_anchors: int) -> list[int]:
    """Lazy greedy facility location: candidates in the order chosen.

    Gains only fall, so old ones are upper bounds, and so are those of representatives whose group is not yet found;
    these go first among equals, hence nothing is chosen while something unknown could still be its equal.
    """
    reached = _Reached(len(ranked.found.text.symbols))
    heap = ranked.queue()
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < max_anchors:
        _, state, tie, c, seen = heap[0]
        if seen == len(chosen):
            if state == _KNOWN:
                heapq.heappop(heap)
                chosen.append(c)
                reached.lift(ranked.lines(c), int(ranked.score[c]))
                continue
            if not ranked.refine(c, state):
                heapq.heappop(heap)
                continue
            state += 1
            tie = ranked.tie(c)
        gain = ranked.gain(c, reached)
        if gain:
            heapq.heapreplace(heap, (-gain, state, tie, c, len(chosen)))
        else:
            heapq.heappop(heap)
    return chosen


def _cut(ranked: _Ranked, chosen: list[int]) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(candidate, starts, stops) after the cut of overlaps, without those left with fewer than two rows."""
    free = np.ones(len(ranked.found.text.symbols), dtype=bool)
    left: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for c in sorted(chosen, key=lambda c: (-ranked.score[c], -ranked.length[c])):
        start, stop = ranked.places(c)
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
