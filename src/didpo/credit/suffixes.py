"""Every repeated run of symbols across rows, of any length, from a suffix array; numpy throughout.

The text is a sequence of int symbols, one row id per position; a symbol that stands once (a barrier) can never be part
of a repeat, so pieces are kept apart by barriers. A *class* is a set of places with equal content that cannot be made
longer without losing a place: a node of the suffix tree. At most one place per row counts, the first in the row.
Time O(n log n) for the tree, memory O(n log n) of int32; no pairs of rows are ever compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """The repeated runs of a text. order: suffix array [n]. Class c stands at order[left[c] : right[c] + 1], is
    length[c] symbols long and found in n_rows[c] >= 2 distinct rows. earlier: [n], by text position: the longest run
    from there that the same row holds earlier, so a place is the first of its row where earlier < length.
    """

    order: np.ndarray
    earlier: np.ndarray
    left: np.ndarray
    right: np.ndarray
    length: np.ndarray
    n_rows: np.ndarray

    def places(self, c: int) -> np.ndarray:
        """Text positions where class `c` begins, one per row (its first), ascending."""
        at = self.order[self.left[c] : self.right[c] + 1]
        return np.sort(at[self.earlier[at] < self.length[c]])


class _RangeMin:
    """Minimum over any closed range of an array, and the searches built on it."""

    def __init__(self, values: np.ndarray) -> None:
        self.levels = [values]
        step = 1
        while 2 * step <= len(values):
            last = self.levels[-1]
            self.levels.append(np.minimum(last[:-step], last[step:]))
            step *= 2

    def query(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Minimum of values[first..last], elementwise; first <= last."""
        level = np.frexp((last - first + 1).astype(np.float64))[1] - 1
        out = np.empty(len(first), dtype=self.levels[0].dtype)
        for k in np.unique(level):
            pick = level == k
            table = self.levels[k]
            out[pick] = np.minimum(table[first[pick]], table[last[pick] + 1 - (1 << int(k))])
        return out

    def next_below(self, start: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Smallest i >= start with values[i] < bound, or n."""
        at = start.copy()
        n = len(self.levels[0])
        for k in range(len(self.levels) - 1, -1, -1):
            table = self.levels[k]
            inside = at < len(table)
            clear = inside & (table[np.where(inside, at, 0)] >= bound)
            at[clear] += 1 << k
        return np.minimum(at, n)

    def last_below(self, start: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Largest i <= start with values[i] < bound, or -1."""
        at = start.copy()
        for k in range(len(self.levels) - 1, -1, -1):
            table = self.levels[k]
            begin = at + 1 - (1 << k)
            inside = begin >= 0
            clear = inside & (table[np.where(inside, begin, 0)] >= bound)
            at[clear] -= 1 << k
        return at


def repeats(symbols: np.ndarray, rows: np.ndarray) -> Repeats:
    """All classes of `symbols` [n] found in at least two of `rows` [n] that a longer class does not dominate.

    A class is dominated where another holds the first place of the same rows and is longer there. Symbols are
    non-negative and every row's positions are contiguous; classes come in the order of their content.
    """
    n = len(symbols)
    empty = np.zeros(0, dtype=np.int64)
    if n < 2:
        return Repeats(
            order=np.arange(n), earlier=np.zeros(n, np.int64), left=empty, right=empty, length=empty, n_rows=empty
        )
    ranks = _prefix_ranks(symbols)
    order = np.argsort(ranks[-1], kind="stable")
    common = np.zeros(n, dtype=np.int32)  # common[i]: symbols that suffixes order[i - 1] and order[i] share
    common[1:] = _shared(ranks, order[:-1], order[1:])
    del ranks
    least = _RangeMin(common)
    earlier, twins = _earlier_in_row(order, rows, least)

    at = np.flatnonzero(common)
    length = common[at].astype(np.int64)
    left = least.last_below(at - 1, length)
    right = least.next_below(at, length) - 1
    keep = np.unique(left * n + right, return_index=True)[1]  # by left, then right: a class appears once per gap
    left, right, length = left[keep], right[keep], length[keep]

    seen = np.concatenate([[0], np.cumsum(twins)])  # places that are not their row's first, summed along the order
    n_rows = right - left + 1 - (seen[right + 1] - seen[left + 1])
    before = np.where(order > 0, symbols[order - 1], -1)
    turns = np.concatenate([[0], np.cumsum(before[1:] != before[:-1])])
    keep = (n_rows >= 2) & (turns[right] > turns[left])  # else every place extends to the left
    left, right, length, n_rows = left[keep], right[keep], length[keep], n_rows[keep]

    first_least = _RangeMin(earlier[order])
    first = first_least.next_below(left, length)
    last = first_least.last_below(right, length)
    keep = least.query(first + 1, last) <= length  # else all first places extend to the right
    return Repeats(
        order=order, earlier=earlier, left=left[keep], right=right[keep], length=length[keep], n_rows=n_rows[keep]
    )


def _prefix_ranks(symbols: np.ndarray) -> list[np.ndarray]:
    """ranks[k][i]: the rank of symbols[i : i + 2**k] among all such pieces, until all ranks differ."""
    n = len(symbols)
    rank = np.unique(symbols, return_inverse=True)[1].astype(np.int64)
    ranks = [rank.astype(np.int32)]
    step = 1
    while int(rank.max()) < n - 1:
        key = rank * (n + 1)
        key[: n - step] += rank[step:] + 1
        by = np.argsort(key, kind="stable")
        new = np.zeros(n, dtype=np.int64)
        new[1:] = np.cumsum(np.diff(key[by]) != 0)
        rank = np.empty(n, dtype=np.int64)
        rank[by] = new
        ranks.append(rank.astype(np.int32))
        step *= 2
    return ranks


def _shared(ranks: list[np.ndarray], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many symbols the suffixes a and b share, elementwise (a != b)."""
    n = len(ranks[0])
    a, b = a.copy(), b.copy()
    shared = np.zeros(len(a), dtype=np.int32)
    for k in range(len(ranks) - 1, -1, -1):
        rank = ranks[k]
        inside = (a < n) & (b < n)
        same = inside & (rank[np.where(inside, a, 0)] == rank[np.where(inside, b, 0)])
        step = same.astype(np.int64) << k
        a += step
        b += step
        shared += step.astype(np.int32)
    return shared


def _earlier_in_row(order: np.ndarray, rows: np.ndarray, least: _RangeMin) -> tuple[np.ndarray, np.ndarray]:
    """For every text position the longest run that its row holds earlier, int32 [n]; and for every gap of the order
    how many places share their longest earlier run exactly down to it, int64 [n].

    The nearest earlier text is a neighbour in the order among the row's own suffixes: the closest one, before or
    after, that begins earlier in the text.
    """
    n = len(order)
    slot = np.argsort(rows[order], kind="stable")  # places of the order, row by row
    text = order[slot]
    row = rows[text]
    ends = np.flatnonzero(np.diff(row)) + 1
    begin = np.zeros(n, dtype=np.int64)
    begin[ends] = ends
    begin = np.maximum.accumulate(begin)
    stop = np.full(n, n, dtype=np.int64)
    stop[ends - 1] = ends
    stop = np.minimum.accumulate(stop[::-1])[::-1]

    smaller = _RangeMin(text.astype(np.int32))
    index = np.arange(n)
    up = smaller.last_below(index, text)
    down = smaller.next_below(index, text)
    has_up, has_down = up >= begin, down < stop
    earlier = np.zeros(n, dtype=np.int32)
    gap = np.zeros(n, dtype=np.int64)
    for has, near, far in ((has_up, up, index), (has_down, index, down)):
        a, b = slot[near[has]] + 1, slot[far[has]]
        shared = least.query(a, b)
        better = shared > earlier[text[has]]
        at = text[has][better]
        earlier[at] = shared[better]
        gap[at] = least.last_below(b[better], shared[better] + 1)
    twins = np.bincount(gap[earlier > 0], minlength=n)
    return earlier, twins
