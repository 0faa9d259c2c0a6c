"""Similar text: runs of similar lines, and blocks of similar text, every one at least `eta` like its representative.

Most blocks are never chosen as anchors, so their groups are found only on demand: until then `Near` gives upper bounds
of what a group can hold, first from the numbers of lines alone, then from the lines' leaders. What is like a
representative is always decided by comparing the two texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist

from didpo.credit.matching import Candidates, Embed, Group, Lines, Text
from didpo.credit.suffixes import repeats

_CHUNK = 512  # lines compared at a time: bounds memory
_KINDS = ("add", "del", "overwrite")
_SLACK = 1e-4  # room for rounding where a cutoff only saves work

Name = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """Texts to compare, with their unit vectors [n, d] where embeddings take part."""

    texts: list[str]
    vectors: np.ndarray | None

    @classmethod
    def of(cls, texts: list[str], embed: Embed | None) -> _Texts:
        if embed is None or not texts:
            return cls(texts=texts, vectors=None)
        vectors = np.asarray(embed(texts), dtype=np.float64).reshape(len(texts), -1)
        return cls(texts=texts, vectors=vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))

    def take(self, index: Sequence[int] | np.ndarray) -> _Texts:
        index = np.asarray(index, dtype=np.int64)
        vectors = None if self.vectors is None else self.vectors[index]
        return _Texts(texts=[self.texts[i] for i in index.tolist()], vectors=vectors)


def _at_least(eta: float, a: Sequence[str], b: Sequence[str]) -> np.ndarray:
    """Lexical similarity of all pairs, float32 [len(a), len(b)], 0 where it is below `eta`.

    The search's own cutoff is rounded and loses pairs that are exactly `eta` alike, so it only saves work here.
    """
    value = cdist(a, b, scorer=Indel.normalized_similarity, score_cutoff=max(eta - _SLACK, 0.0), dtype=np.float32)
    return np.where(value >= np.float32(eta), value, np.float32(0))


def _similar(a: _Texts, b: _Texts, eta: float, embed_weight: float) -> np.ndarray:
    """Similarity of all pairs of texts, float32 [len(a), len(b)], 0 where it is below `eta`.

    Lexical: 2 * longest common subsequence / length of both, in characters. With vectors: (1 - embed_weight) times
    that plus embed_weight times the cosine, a negative one counted as 0.
    """
    if a.vectors is None or b.vectors is None:
        return _at_least(eta, a.texts, b.texts)
    lexical = cdist(a.texts, b.texts, scorer=Indel.normalized_similarity, dtype=np.float32)
    both = (1 - embed_weight) * lexical + embed_weight * np.maximum(a.vectors @ b.vectors.T, 0)
    return np.where(both >= eta - 1e-9, both, 0).astype(np.float32)


def similar_candidates(lines: Lines, *, eta: float, embed: Embed | None, embed_weight: float) -> Candidates:
    """Exact runs, and for every fragment that repeats, or nearly, the places at least `eta` like it.

    Similar lines are first joined to leaders, so that runs of similar lines are found at every scale by the same
    search as equal ones. Every text found so, and every whole unbroken piece of changed lines, is then compared with
    each of them as a whole: a group holds what is at least `eta` like its representative, never what is only like
    another member. Blocks are compared character by character where at least `eta` of their lines have the same
    leaders in the same order. In a row the most similar place counts, then the first.
    """
    everything = np.flatnonzero(lines.changed)
    text = lines.text(lines.symbols, lines.names, also=everything)
    exact = repeats(text.symbols, text.rows)
    leading = _leading(lines, text, eta, embed, embed_weight)
    near = repeats(leading, text.rows)
    places: dict[Name, set[int]] = {}
    heads: set[Name] = set()
    for runs in (exact, near):
        for c in range(len(runs.length)):
            found = [(text.content(at, int(runs.length[c])), at) for at in runs.places(c).tolist()]
            for name, at in found:
                places.setdefault(name, set()).add(at)
            counts = Counter(name for name, _ in found)
            heads.add(min(counts, key=lambda name: (-counts[name], name)))
    ends = np.flatnonzero(np.diff(text.line) == 0) + 1  # the barriers
    begin = 0
    for end in ends.tolist():
        name = text.content(begin, end - begin)
        places.setdefault(name, set()).add(begin)
        heads.add(name)
        begin = end + 1
    shown = "".join(map(chr, leading.tolist()))
    ordered = sorted(places)
    items = {k: _Items.of({n: places[n] for n in ordered if n[0] == k}, shown, embed) for k in _KINDS}
    blocks = Near(text=text, heads=sorted(heads), items=items, eta=eta, embed_weight=embed_weight)
    return Candidates(text=text, runs=exact, near=blocks)


@dataclass(frozen=True, kw_only=True)
class _Items:
    """The texts of one edit kind, shortest first, then by name.

    codes: their lines as leaders, one character a line; sizes [n]: lines; first [n + 1]: where the text positions of
    an item lie in `begins`, ascending; rank [n]: place in the order of names; vectors [n, d]: of embeddings; pieces:
    start and stop of all unbroken text of this kind; bare: texts without indentation, as far
    as they were needed; compared: lexical similarity of the pairs (smaller, greater number) compared so far.
    """

    names: list[Name]
    number: dict[Name, int]
    codes: list[str]
    vectors: np.ndarray | None
    sizes: np.ndarray
    begins: np.ndarray
    first: np.ndarray
    rank: np.ndarray
    pieces: tuple[np.ndarray, np.ndarray]
    bare: dict[int, str] = field(default_factory=dict)
    compared: dict[tuple[int, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, places: dict[Name, set[int]], shown: str, embed: Embed | None) -> _Items:
        """`places` in the order of names; `shown`: the whole text as leaders."""
        by_name = list(places)
        rank = np.argsort([len(lines) for _, lines in by_name], kind="stable").astype(np.int64)
        names = [by_name[i] for i in rank.tolist()]
        counts = np.array([len(places[name]) for name in names], dtype=np.int64)
        sizes = np.array([len(lines) for _, lines in names], dtype=np.int64)
        item = np.repeat(np.arange(len(names)), counts)
        begins = np.array([at for name in names for at in places[name]], dtype=np.int64)
        begins = begins[np.lexsort((begins, item))]
        first = np.append(0, np.cumsum(counts))
        codes = [shown[at : at + n] for at, n in zip(begins[first[:-1]].tolist(), sizes.tolist(), strict=True)]
        covered = np.bincount(begins, minlength=len(shown) + 1)
        covered -= np.bincount(begins + sizes[item], minlength=len(shown) + 1)
        edge = np.diff((np.cumsum(covered) > 0).astype(np.int8), prepend=0)
        return cls(
            names=names,
            number={name: i for i, name in enumerate(names)},
            codes=codes,
            vectors=_Texts.of([_bare(lines) for _, lines in names], embed).vectors if embed else None,
            sizes=sizes,
            begins=begins,
            first=first,
            rank=rank,
            pieces=(np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)),
        )

    def places(self, item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(item, text position) of all places of some items, item by item."""
        counts = self.first[item + 1] - self.first[item]
        ends = np.cumsum(counts)
        at = np.arange(int(counts.sum())) + np.repeat(self.first[item] - (ends - counts), counts)
        return np.repeat(item, counts), self.begins[at]

    def text(self, i: int) -> str:
        known = self.bare.get(i)
        if known is None:
            known = self.bare[i] = _bare(self.names[i][1])
        return known

    def by_size(self, size: int, eta: float) -> tuple[int, int]:
        """The items first..stop (stop excluded) whose numbers of lines allow a likeness of `eta` to `size` lines."""
        share = max(eta, 0.0) / (2 - max(eta, 0.0))  # of the shorter in the longer
        low = math.ceil(size * share - _SLACK)
        high = size / share + _SLACK if share > 0 else math.inf
        return int(np.searchsorted(self.sizes, low)), int(np.searchsorted(self.sizes, high, side="right"))


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What the group of a representative can hold at most, in `n_rows` rows: `covered` lines, `length` in one place.

    Once the leaders have been looked at: one of the places start..stop of `item` in each of its rows; bounds: where
    each row begins among the places, which are ordered by row. Before that start..stop are all lines of the edit kind.
    """

    n_rows: int
    covered: int
    length: int
    start: np.ndarray
    stop: np.ndarray
    item: np.ndarray | None = None
    bounds: np.ndarray | None = None

    def gain(self, score: int, total: np.ndarray) -> int:
        """Most that a place per row can add; total [n + 1]: what the lines before each position can still add."""
        if self.bounds is None:
            return min(score * self.covered, int((total[self.stop] - total[self.start]).sum()))
        return int(np.maximum.reduceat(total[self.stop] - total[self.start], self.bounds).sum())


@dataclass(frozen=True, kw_only=True)
class Near:
    """The groups of similar blocks, one per representative, found on demand. heads: representatives, sorted."""

    text: Text
    heads: list[Name]
    items: dict[str, _Items]
    eta: float
    embed_weight: float
    rough: dict[tuple[str, int], Reach | None] = field(default_factory=dict)

    def by_size(self, h: int) -> Reach | None:
        """Reach of representative `h` by the numbers of lines alone; None where fewer than two rows are left."""
        kind, lines = self.heads[h]
        key = kind, len(lines)
        if key not in self.rough:
            items = self.items[kind]
            first, stop = items.by_size(len(lines), self.eta)
            item, begins = items.places(np.arange(first, stop))
            sizes = items.sizes[item]
            longest = np.zeros(int(self.text.rows.max()) + 1, dtype=np.int64)
            np.maximum.at(longest, self.text.rows[begins], sizes)
            n = int(np.count_nonzero(longest))
            reach = Reach(
                n_rows=n,
                covered=int(longest.sum()),
                length=int(longest.max()),
                start=items.pieces[0],
                stop=items.pieces[1],
            )
            self.rough[key] = reach if n >= 2 else None
        return self.rough[key]

    def by_leaders(self, h: int) -> Reach | None:
        """Reach of representative `h` by the lines' leaders; None where fewer than two rows or texts are left."""
        kind, lines = self.heads[h]
        items = self.items[kind]
        first, stop = items.by_size(len(lines), self.eta)
        code = items.codes[items.number[self.heads[h]]]
        table = _at_least(self.eta, [code], items.codes[first:stop])[0]
        like = table > 0
        if len(code) == 1:
            like |= items.sizes[first:stop] == 1
        item = np.flatnonzero(like) + first
        if len(item) < 2:
            return None
        item, start = items.places(item)
        order = np.argsort(self.text.rows[start], kind="stable")
        item, start = item[order], start[order]
        bounds = np.flatnonzero(np.diff(self.text.rows[start], prepend=-1))
        if len(bounds) < 2:
            return None
        size = items.sizes[item]
        longest = np.maximum.reduceat(size, bounds)
        return Reach(
            n_rows=len(bounds),
            covered=int(longest.sum()),
            length=int(longest.max()),
            item=item,
            start=start,
            stop=start + size,
            bounds=bounds,
        )

    def group(self, h: int, reach: Reach) -> Group | None:
        """The best place per row among the items of `reach` like `h`, where that joins different texts of two rows."""
        assert reach.item is not None
        items = self.items[self.heads[h][0]]
        distinct, which = np.unique(reach.item, return_inverse=True)
        value = self._likeness(items, items.number[self.heads[h]], distinct)[which]
        order = np.lexsort((items.rank[reach.item], reach.start, -value))
        order = order[value[order] >= np.float32(self.eta)]
        first = order[np.unique(self.text.rows[reach.start[order]], return_index=True)[1]]
        if len(first) < 2 or len(np.unique(reach.item[first])) < 2:
            return None
        return Group(start=reach.start[first], stop=reach.stop[first], name=self.heads[h])

    def _likeness(self, items: _Items, head: int, others: np.ndarray) -> np.ndarray:
        """Similarity of one text to others, float32 [n]; lexically alone, 0 where it is well below `eta`."""
        cutoff = None if items.vectors is not None else self.eta - _SLACK
        keys = [(head, i) if head < i else (i, head) for i in others.tolist()]
        new = [k for k, key in enumerate(keys) if key not in items.compared]
        texts = [items.text(i) for i in others[new].tolist()]
        scorer = Indel.normalized_similarity
        found = cdist([items.text(head)], texts, scorer=scorer, score_cutoff=cutoff, dtype=np.float32)[0]
        items.compared.update(zip([keys[k] for k in new], found.tolist(), strict=True))
        value = np.array([items.compared[key] for key in keys], dtype=np.float32)
        if items.vectors is not None:
            cosine = np.einsum("d,nd->n", items.vectors[head], items.vectors[others])
            value = ((1 - self.embed_weight) * value + self.embed_weight * np.maximum(cosine, 0)).astype(np.float32)
        return value


def _leading(lines: Lines, text: Text, eta: float, embed: Embed | None, embed_weight: float) -> np.ndarray:
    """The text with every line replaced by the number of its leader; barriers stay. int64 [n]"""
    is_line = np.append(True, np.diff(text.line) != 0) if len(text.line) else np.zeros(0, dtype=bool)
    used = np.unique(lines.symbols[text.line[is_line]])
    bare = {int(s): lines.names[s][1].strip() for s in used}
    rows_of: dict[str, set[int]] = {}
    for s, row in zip(lines.symbols[text.line].tolist(), text.rows.tolist(), strict=True):
        rows_of.setdefault(bare[s], set()).add(row)
    texts = sorted(rows_of, key=lambda t: (-len(rows_of[t]), t))
    leader = dict(zip(texts, _leaders(_Texts.of(texts, embed), eta, embed_weight).tolist(), strict=True))
    number = {s: leader[t] * len(_KINDS) + _KINDS.index(lines.names[s][0]) for s, t in bare.items()}
    out = np.array([number[s] for s in lines.symbols[text.line].tolist()], dtype=np.int64)
    out[~is_line] = len(texts) * len(_KINDS) + np.arange(int((~is_line).sum()))
    return out


def _leaders(texts: _Texts, eta: float, embed_weight: float) -> np.ndarray:
    """For each text the index of its leader: itself, or the most similar earlier leader, at least `eta` like it."""
    n = len(texts.texts)
    leader = np.arange(n)
    leaders: list[int] = []
    for begin in range(0, n, _CHUNK):
        chunk = texts.take(range(begin, min(begin + _CHUNK, n)))
        size = len(chunk.texts)
        inside = _similar(chunk, chunk, eta, embed_weight)
        old = np.zeros(size)
        old_at = np.zeros(size, dtype=np.int64)
        if leaders:
            table = _similar(chunk, texts.take(leaders), eta, embed_weight)
            old, old_at = table.max(axis=1), np.array(leaders)[table.argmax(axis=1)]
        fresh = np.zeros(size)  # likeness to the best leader of this chunk so far
        fresh_at = np.zeros(size, dtype=np.int64)
        for k in range(size):
            if fresh[k] > old[k]:
                leader[begin + k] = fresh_at[k]
            elif old[k] > 0:
                leader[begin + k] = old_at[k]
            else:
                leaders.append(begin + k)
                better = inside[k] > fresh
                fresh[better] = inside[k][better]
                fresh_at[better] = begin + k
    return leader


def _bare(lines: Sequence[str]) -> str:
    """Lines as one text without their common indentation."""
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[margin:] for line in lines)
