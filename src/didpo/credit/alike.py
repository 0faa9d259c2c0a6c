"""Places that match without being spelled alike: functions equal up to names and layout, and similar text."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist, cpdist

from didpo.credit.canonical import canonical
from didpo.credit.matching import Candidates, Embed, Group, Lines, Text
from didpo.credit.suffixes import repeats

_HEAD = re.compile(r"(?:async\s+)?def\s+(\w+)")
_CHUNK = 512  # lines compared at a time: bounds memory


# ---------------------------------------------------------------- functions equal up to names and layout


@dataclass(frozen=True, kw_only=True)
class AlikeFunctions:
    """Places of functions with one canonical form: line numbers first..stop (stop excluded) among all lines."""

    name: tuple[str, tuple[str, ...]]
    first: list[int]
    stop: list[int]

    @property
    def lines(self) -> list[int]:
        return [i for first, stop in zip(self.first, self.stop, strict=True) for i in range(first, stop)]


def renamed_functions(lines: Lines) -> list[AlikeFunctions]:
    """Functions, all their lines changed, that at least two rows write differently but mean alike.

    Functions that are spelled alike everywhere are left to the runs of lines. One place per row, its first.
    """
    named: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for r, first, stop, name in _functions(lines):
        named.setdefault((lines.roots[r].kind, name), []).append((first, stop))
    out = []
    for (kind, _), places in named.items():
        texts = [tuple(lines.names[s][1] for s in lines.symbols[first:stop].tolist()) for first, stop in places]
        if len(set(texts)) < 2:
            continue
        keys = {text: _canonical("\n".join(text)) for text in set(texts)}
        groups: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            key = keys[text]
            if key is not None:
                groups.setdefault(key, []).append(i)
        for members in groups.values():
            once = list({int(lines.rows[places[i][0]]): i for i in reversed(members)}.values())[::-1]
            spellings = Counter(texts[i] for i in once)
            if len(once) >= 2 and len(spellings) >= 2:
                text = min(spellings, key=lambda t: (-spellings[t], t))
                spans = sorted(places[i] for i in once)
                out.append(AlikeFunctions(name=(kind, text), first=[s[0] for s in spans], stop=[s[1] for s in spans]))
    return out


def placed(text: Text, functions: AlikeFunctions) -> Group:
    """The functions as places of `text`, which must hold all their lines."""
    at = np.searchsorted(text.line, functions.first)  # a barrier comes after the line whose number it carries
    return Group(start=at, stop=at + np.subtract(functions.stop, functions.first), name=functions.name)


def _functions(lines: Lines) -> list[tuple[int, int, int, str]]:
    """(root, first, stop, name) of what looks like a function with all its lines changed, decorators included."""
    out = []
    offset = 0
    for r, root in enumerate(lines.roots):
        if root.path.endswith(".py") and root.changed.any():
            for first, stop, name in function_ranges(root.lines):
                if root.changed[first:stop].all():
                    out.append((r, offset + first, offset + stop, name))
        offset += len(root.lines)
    return out


def function_ranges(code: Sequence[str]) -> list[tuple[int, int, str]]:
    """(first, stop, name) of the functions in normalised lines of Python, by indentation."""
    indents = [len(line) - len(line.lstrip()) for line in code]
    out = []
    for i, line in enumerate(code):
        match = _HEAD.match(line, indents[i])
        if match is None:
            continue
        first = i
        while first and code[first - 1].startswith("@", indents[i]) and indents[first - 1] == indents[i]:
            first -= 1
        stop = i + 1
        while stop < len(code) and (indents[stop] > indents[i] or code[stop][indents[stop]] in ")]}"):
            stop += 1
        out.append((first, stop, match.group(1)))
    return out


@lru_cache(maxsize=20_000)
def _canonical(text: str) -> str | None:
    """Key of the one function that `text` is, or None where it is none."""
    lines = text.split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    margin = lines[0][:indent]
    code = "\n".join(line.removeprefix(margin) for line in lines)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(body) != 1 or not isinstance(body[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    return canonical(body)


# ---------------------------------------------------------------- similar text


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


def _similar(a: _Texts, b: _Texts, eta: float, embed_weight: float) -> np.ndarray:
    """Similarity of all pairs of texts, float32 [len(a), len(b)], 0 where it is below `eta`.

    Lexical: 2 * longest common subsequence / length of both, in characters. With vectors: (1 - embed_weight) times
    that plus embed_weight times the cosine, a negative one counted as 0.
    """
    if a.vectors is None or b.vectors is None:
        return cdist(a.texts, b.texts, scorer=Indel.normalized_similarity, score_cutoff=eta, dtype=np.float32)
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
    places: dict[tuple[str, tuple[str, ...]], set[int]] = {}
    heads: set[tuple[str, tuple[str, ...]]] = set()
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
    groups = []
    for kind in ("add", "del", "overwrite"):
        items = sorted(name for name in places if name[0] == kind)
        first = [min(places[name]) for name in items]
        codes = ["".join(map(chr, leading[at : at + len(name[1])])) for at, name in zip(first, items, strict=True)]
        items_of = _Items(names=items, codes=codes, texts=_Texts.of([_bare(name[1]) for name in items], embed))
        groups += _groups(items_of, sorted(h for h in heads if h[0] == kind), places, text, eta, embed_weight)
    return Candidates(text=text, runs=exact, groups=tuple(groups))


@dataclass(frozen=True, kw_only=True)
class _Items:
    """Texts of one edit kind: their names, their lines as leaders (one character a line), their bare texts."""

    names: list[tuple[str, tuple[str, ...]]]
    codes: list[str]
    texts: _Texts

    def like(self, heads: list[int], eta: float, embed_weight: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(head, item, similarity) of all pairs of at least `eta`, ordered by head, then item."""
        table = cdist(
            [self.codes[h] for h in heads],
            self.codes,
            scorer=Indel.normalized_similarity,
            score_cutoff=eta,
            dtype=np.float32,
        )
        one = np.array([len(code) == 1 for code in self.codes])
        head, item = np.nonzero((table > 0) | (one[heads][:, None] & one))
        a = self.texts.take(np.asarray(heads)[head])
        b = self.texts.take(item)
        value = cpdist(a.texts, b.texts, scorer=Indel.normalized_similarity, dtype=np.float32)
        if a.vectors is not None and b.vectors is not None:
            cosine = np.einsum("nd,nd->n", a.vectors, b.vectors)
            value = ((1 - embed_weight) * value + embed_weight * np.maximum(cosine, 0)).astype(np.float32)
        keep = value >= np.float32(eta)
        return head[keep], item[keep], value[keep]


def _groups(
    items: _Items,
    heads: list[tuple[str, tuple[str, ...]]],
    places: dict[tuple[str, tuple[str, ...]], set[int]],
    text: Text,
    eta: float,
    embed_weight: float,
) -> list[Group]:
    """For every head the best place per row among the items like it, where that joins different texts of two rows."""
    index = {name: i for i, name in enumerate(items.names)}
    starts = [np.array(sorted(places[name]), dtype=np.int64) for name in items.names]
    counts = np.array([len(s) for s in starts], dtype=np.int64)
    sizes = np.array([len(lines) for _, lines in items.names], dtype=np.int64)
    seen: set[bytes] = set()
    out = []
    for begin in range(0, len(heads), _CHUNK):
        part = heads[begin : begin + _CHUNK]
        head, item, value = items.like([index[h] for h in part], eta, embed_weight)
        bounds = np.searchsorted(head, np.arange(len(part) + 1))
        for k in range(len(part)):
            like = item[bounds[k] : bounds[k + 1]]
            if len(like) < 2:
                continue
            start = np.concatenate([starts[i] for i in like])
            which = np.repeat(np.arange(len(like)), counts[like])
            order = np.lexsort((start, -value[bounds[k] : bounds[k + 1]][which]))
            first = order[np.unique(text.rows[start[order]], return_index=True)[1]]
            begins, size = start[first], sizes[like][which[first]]
            key = begins.tobytes() + size.tobytes()
            if len(first) >= 2 and which[first].min() < which[first].max() and key not in seen:
                seen.add(key)
                out.append(Group(start=begins, stop=begins + size, name=part[k]))
    return out


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
    kinds = ("add", "del", "overwrite")
    number = {s: leader[t] * len(kinds) + kinds.index(lines.names[s][0]) for s, t in bare.items()}
    out = np.array([number[s] for s in lines.symbols[text.line].tolist()], dtype=np.int64)
    out[~is_line] = len(texts) * len(kinds) + np.arange(int((~is_line).sum()))
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
