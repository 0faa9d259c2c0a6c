"""A slow, obviously right search for anchors: every span of every root, every round over every candidate.

It shares no code with the engine beyond the types of its input. Exact equality, and similarity of letters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

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

    return ref_cut(chosen, candidates, score, {key: len(key[1]) for key in chosen}, worth)


def ref_cut(
    chosen: list, candidates: dict, score: dict, length: dict, worth: Callable[[float, int], float]
) -> list[RefAnchor]:
    """Per root the places that do not overlap: higher score first, then longer, then earlier chosen."""
    left: dict[int, list[Place]] = {k: [] for k in range(len(chosen))}
    taken: set[tuple[int, int, int]] = set()
    for k in sorted(range(len(chosen)), key=lambda k: (-score[chosen[k]], -length[chosen[k]], k)):
        for place in candidates[chosen[k]]:
            if taken.isdisjoint(cells(place)):
                taken.update(cells(place))
                left[k].append(place)
    out = []
    for k, key in enumerate(chosen):
        if len(left[k]) >= 2:
            mean = sum(stop - start for _, _, start, stop in left[k]) / len(left[k])
            out.append(RefAnchor(key[-2], key[-1], tuple(left[k]), worth(mean, len(left[k]))))
    return out


# ---------------------------------------------------------------- similar text


@lru_cache(maxsize=100_000)
def ref_likeness(a: str, b: str) -> Fraction:
    return Fraction(2 * ref_lcs(a, b), len(a) + len(b))


def ref_leaders(texts: Sequence[str], eta: Fraction) -> dict[str, str]:
    """Each text's leader: the most similar earlier leader that is at least eta like it, else the text itself."""
    leader: dict[str, str] = {}
    for text in texts:
        like = [(ref_likeness(text, t), t) for t in leader if leader[t] == t and ref_likeness(text, t) >= eta]
        leader[text] = max(like, key=lambda pair: pair[0])[1] if like else text
    return leader


def ref_runs(pieces: Sequence[tuple[Place, tuple]]) -> list[list[Place]]:
    """First places per row of the repeated runs of the pieces' symbols, without those that a longer one dominates."""
    found: dict[tuple, list[tuple[Place, object, object]]] = {}
    for (row, root, begin, _), symbols in pieces:
        n = len(symbols)
        for i in range(n):
            for j in range(i + 1, n + 1):
                place = (row, root, begin + i, begin + j)
                before = symbols[i - 1] if i else ("end", place)
                after = symbols[j] if j < n else ("end", place)
                found.setdefault(symbols[i:j], []).append((place, before, after))
    out = []
    for places in found.values():
        first: dict[int, tuple[Place, object, object]] = {}
        for item in sorted(places, key=lambda item: item[0]):
            first.setdefault(item[0][0], item)
        if len(first) >= 2 and len({b for _, b, _ in places}) > 1 and len({a for _, _, a in first.values()}) > 1:
            out.append(sorted(place for place, _, _ in first.values()))
    return out


def ref_similar(rows: Sequence[Row], eta: float, max_anchors: int = 64) -> list[RefAnchor]:
    """Anchors of similar text: every group compared in full, every round over every candidate."""
    limit = Fraction(str(eta))
    pieces: list[tuple[Place, tuple]] = []
    rows_of: dict[str, set[int]] = {}
    for r, row in enumerate(rows):
        for q, root in enumerate(row.roots):
            start = 0
            for i in range(len(root.lines) + 1):
                if i == len(root.lines) or not root.changed[i]:
                    if i > start:
                        pieces.append(((r, q, start, i), tuple((root.kind, line) for line in root.lines[start:i])))
                    start = i + 1
                else:
                    rows_of.setdefault(root.lines[i].strip(), set()).add(r)
    leader = ref_leaders(sorted(rows_of, key=lambda t: (-len(rows_of[t]), t)), limit)
    led = [(place, tuple((kind, leader[line.strip()]) for kind, line in symbols)) for place, symbols in pieces]

    def name(place: Place) -> tuple[str, tuple[str, ...]]:
        root = rows[place[0]].roots[place[1]]
        return root.kind, root.lines[place[2] : place[3]]

    exact, near = ref_runs(pieces), ref_runs(led)
    known: dict[tuple[str, tuple[str, ...]], set[Place]] = {}
    heads = set()
    for run in exact + near:
        counts = Counter(map(name, run))
        heads.add(min(counts, key=lambda key: (-counts[key], key)))
        for place in run:
            known.setdefault(name(place), set()).add(place)
    for place, _ in pieces:
        heads.add(name(place))
        known.setdefault(name(place), set()).add(place)

    candidates: dict[tuple, list[Place]] = {(0, *name(run[0])): run for run in exact}
    for head in heads:
        best: dict[int, tuple[tuple, Place]] = {}
        for other, places in known.items():
            if other[0] == head[0] and _alike(head[1], other[1], leader, limit):
                value = ref_likeness(_bare(head[1]), _bare(other[1]))
                for place in places:
                    rank = (-value, place, other)
                    if place[0] not in best or rank < best[place[0]][0]:
                        best[place[0]] = (rank, place)
        group = sorted(place for _, place in best.values())
        if len({name(place) for place in group}) >= 2:
            candidates[(1, *head)] = group
    return _greedy(candidates, max_anchors)


def _bare(lines: Sequence[str]) -> str:
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[margin:] for line in lines)


def _alike(a: Sequence[str], b: Sequence[str], leader: dict[str, str], eta: Fraction) -> bool:
    led = [[leader[line.strip()] for line in lines] for lines in (a, b)]
    if (len(a), len(b)) != (1, 1) and Fraction(2 * ref_lcs(*led), len(a) + len(b)) < eta:
        return False
    return ref_likeness(_bare(a), _bare(b)) >= eta


def _greedy(candidates: dict[tuple, list[Place]], max_anchors: int) -> list[RefAnchor]:
    length = {k: sum(stop - start for _, _, start, stop in p) / len(p) for k, p in candidates.items()}
    score = {k: round(ref_groupability(length[k], len(p)) * 2**32) for k, p in candidates.items()}
    best: dict[tuple[int, int, int], int] = {}
    chosen: list[tuple] = []
    while len(chosen) < max_anchors:
        ranked = []
        for key, places in candidates.items():
            gain = sum(max(0, score[key] - best.get(cell, 0)) for place in places for cell in cells(place))
            if gain > 0:
                by_line = tuple((key[1], line) for line in key[2]) if key[0] == 0 else key[1:]
                ranked.append((-gain, -score[key], -length[key], key[0], by_line, key))
        if not ranked:
            break
        key = min(ranked)[-1]
        chosen.append(key)
        for place in candidates[key]:
            for cell in cells(place):
                best[cell] = max(best.get(cell, 0), score[key])
    return ref_cut(chosen, candidates, score, length, ref_groupability)


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
