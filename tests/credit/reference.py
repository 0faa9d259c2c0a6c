"""A slow, obviously right search for anchors: every span of every root, every round over every candidate.

It shares no code with the engine beyond the types of its input. Exact equality only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from didpo.credit.diffs import Row

Place = tuple[int, int, int, int]  # row, root, start, stop


@dataclass(frozen=True)
class RefAnchor:
    kind: str
    lines: tuple[str, ...]
    places: tuple[Place, ...]
    groupability: float


def ref_groupability(
    length: float, n: int, form: str = "exp", combine: str = "product", s0: float = 8, g0: float = 8
) -> float:
    if form == "exp":
        phi, psi = 1 - math.exp(-length / s0), 1 - math.exp(-(n - 1) / g0)
    elif form == "log":
        phi = min(1, math.log(1 + length) / math.log(1 + s0))
        psi = min(1, math.log(n) / math.log(max(2, g0)))
    else:
        phi, psi = min(1, length / s0), min(1, (n - 1) / (g0 - 1))
    return phi * psi if combine == "product" else phi + psi


def ref_candidates(rows: Sequence[Row]) -> dict[tuple[str, tuple[str, ...]], list[Place]]:
    """(kind, lines) -> its first place in every row that has it; only what two rows have."""
    found: dict[tuple[str, tuple[str, ...]], dict[int, Place]] = {}
    for r, row in enumerate(rows):
        for q, root in enumerate(row.roots):
            n = len(root.lines)
            for start in range(n):
                for stop in range(start + 1, n + 1):
                    if all(root.changed[start:stop]):
                        found.setdefault((root.kind, root.lines[start:stop]), {}).setdefault(r, (r, q, start, stop))
    return {key: sorted(places.values()) for key, places in found.items() if len(places) >= 2}


def cells(place: Place) -> list[tuple[int, int, int]]:
    row, root, start, stop = place
    return [(row, root, line) for line in range(start, stop)]


def ref_anchors(
    rows: Sequence[Row],
    *,
    form: str = "exp",
    combine: str = "product",
    s0: float = 8,
    g0: float = 8,
    max_anchors: int = 64,
) -> list[RefAnchor]:
    def worth(length: float, n: int) -> float:
        return ref_groupability(length, n, form, combine, s0, g0)

    candidates = ref_candidates(rows)
    score = {key: round(worth(len(key[1]), len(places)) * 2**32) for key, places in candidates.items()}
    best: dict[tuple[int, int, int], int] = {}
    chosen: list[tuple[str, tuple[str, ...]]] = []
    while len(chosen) < max_anchors:
        ranked = []
        for key, places in candidates.items():
            gain = sum(max(0, score[key] - best.get(cell, 0)) for place in places for cell in cells(place))
            if gain > 0:
                ranked.append((-gain, -score[key], -len(key[1]), key))
        if not ranked:
            break
        key = min(ranked)[3]
        chosen.append(key)
        for place in candidates[key]:
            for cell in cells(place):
                best[cell] = max(best.get(cell, 0), score[key])

    left: dict[int, list[Place]] = {k: [] for k in range(len(chosen))}
    for r, row in enumerate(rows):
        for q in range(len(row.roots)):
            here = [
                (-score[key], -len(key[1]), k, place)
                for k, key in enumerate(chosen)
                for place in candidates[key]
                if place[:2] == (r, q)
            ]
            taken: set[int] = set()
            for _, _, k, place in sorted(here):
                if taken.isdisjoint(range(place[2], place[3])):
                    taken.update(range(place[2], place[3]))
                    left[k].append(place)
    return [
        RefAnchor(key[0], key[1], tuple(left[k]), worth(len(key[1]), len(left[k])))
        for k, key in enumerate(chosen)
        if len(left[k]) >= 2
    ]


def ref_lcs(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of a longest common subsequence, by the textbook table."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def ref_token_mask(offsets: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """A token counts when one of its characters lies in a range."""
    inside = {c for start, stop in ranges for c in range(start, stop)}
    return [any(c in inside for c in range(start, stop)) for start, stop in offsets]
