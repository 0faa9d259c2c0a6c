"""Regions of a file: each function and method, and the top-level statements as one region of their own.

Files are split by their lines that begin at the margin; the split is trusted where every piece is closed in itself
(brackets balanced, no long strings) or parses, otherwise the parse of the whole file decides. A file that does not
parse keeps the split by lines, so that a broken function is still a region with its name. Files of other languages, or
of which no version can be split, are cut into blocks between the lines that all versions share.

Contents are compared up to comments, layout, docstrings and local names (`canonical`). Only texts that could be equal
are parsed for it: those whose skeletons (names dropped) are equal.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeVar

import numpy as np

from didpo.credit.canonical import canonical, digest, parse
from didpo.credit.comments import syntax_of
from didpo.credit.diffs import normalise

T = TypeVar("T")
TOP = ""  # name of the region of top-level statements
_SHORT, _LONG = 8_000, 1_000_000  # characters of texts of which many, few or (beyond) none are remembered
_FEW = 64

_NO_HEAD = frozenset(["", *"# \t\r\f\v)]}"])  # what a line begins with that continues the piece before it
_LONG_STRING = re.compile(r'"""[\s\S]*?"""')
_CLASS = re.compile(r"^class\b", re.MULTILINE)
_NAMED = re.compile(r"(?:async[ \t]+)?def[ \t]+(\w+)|class[ \t]+(\w+)")


@dataclass(frozen=True, kw_only=True, eq=False)
class FileRegions:
    """names: unique in the file. line_region [n_lines + 1]: region of each line (the last serves the end of file)."""

    names: tuple[str, ...]
    line_region: np.ndarray
    split: bool = True  # False: neither functions nor a parse were found


def _remembered(maxsize: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Results are kept between calls, fewer for long texts: training meets the same code again and again."""

    def wrap(function: Callable[..., T]) -> Callable[..., T]:
        many, few = lru_cache(maxsize=maxsize)(function), lru_cache(maxsize=_FEW)(function)

        @wraps(function)
        def call(text: str, *args: str) -> T:
            return (many if len(text) <= _SHORT else few if len(text) <= _LONG else function)(text, *args)

        return call

    return wrap


def is_python(path: str) -> bool:
    """By the extension; a file without one counts as Python."""
    name = path.rsplit("/", 1)[-1]
    return "." not in name or name.endswith((".py", ".pyi"))


def raw_lines(text: str, positions: np.ndarray) -> np.ndarray:
    """The 0-based line of each character position of `text`. int64 [n] -> [n]"""
    ends = np.flatnonzero(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4") == 10)
    return np.searchsorted(ends, positions)


@_remembered(4096)
def file_regions(text: str) -> FileRegions:
    """The regions of a Python file."""
    n_lines = text.count("\n") + 1
    pieces = _pieces(text)
    found = any(name != TOP for name, _, _ in pieces)
    if not all(map(_closed, _texts_of(text, pieces))):
        tree = _parse(text)
        if tree is not None:
            pieces, found = _inside(tree, n_lines), True
        elif not found:
            return FileRegions(names=(TOP,), line_region=np.zeros(n_lines + 1, dtype=np.int64), split=False)
    else:
        pieces = _with_methods(text, pieces)
    return _numbered(pieces, n_lines)


Piece = tuple[str, int, int]  # name, first line, line after the last


def _pieces(text: str) -> list[Piece]:
    """Top-level pieces by the lines at the margin: functions and classes by name, all else TOP."""
    starts: list[tuple[int, str]] = []
    decorated: int | None = None
    lines = text.split("\n")
    for line, words in enumerate(lines):
        if words[:1] in _NO_HEAD:
            continue
        if words[0] == "@":
            decorated = line if decorated is None else decorated
            continue
        named = _NAMED.match(words)
        name = (named[1] or named[2]) if named else TOP
        if name != TOP or not starts or starts[-1][1] != TOP or decorated is not None:
            starts.append((line if decorated is None else decorated, name))
        decorated = None
    stops = [*(start for start, _ in starts[1:]), len(lines)][: len(starts)]
    return [(name, start, stop) for (start, name), stop in zip(starts, stops, strict=True)]


def _texts_of(text: str, pieces: list[Piece]) -> list[str]:
    lines = text.split("\n")
    return ["\n".join(lines[a:b]) for _, a, b in pieces]


@_remembered(8192)
def _closed(piece: str) -> bool:
    """Whether a piece ends where it seems to: a cheap check, and a parse where that does not tell."""
    quotes = piece.count('"""')
    if quotes % 2 == 0 and "'''" not in piece and "\\\n" not in piece:
        count = (_LONG_STRING.sub("", piece) if quotes else piece).count
        if count("(") == count(")") and count("[") == count("]") and count("{") == count("}"):
            return True
    return _parse(piece) is not None


def _with_methods(text: str, pieces: list[Piece]) -> list[Piece]:
    """Classes split into their methods, where they parse."""
    out: list[Piece] = []
    for piece, code in zip(pieces, _texts_of(text, pieces), strict=True):
        inside = _methods(code) if piece[0] != TOP and _CLASS.search(code) else None
        out += [piece] if inside is None else [(name, piece[1] + a, piece[1] + b) for name, a, b in inside]
    return out


@_remembered(2048)
def _methods(code: str) -> list[Piece] | None:
    """The pieces of a class (with its decorators), counted from its own first line; None where it does not parse."""
    tree = _parse(code)
    return None if tree is None else _inside(tree, code.count("\n") + 1)


def _inside(tree: ast.Module, n_lines: int) -> list[Piece]:
    """Pieces of a parsed text; what is outside functions and classes is TOP, later pieces lie inside earlier ones."""
    out: list[Piece] = [(TOP, 0, n_lines)]

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
                out.append((prefix + node.name, first, node.end_lineno or node.lineno))
                if isinstance(node, ast.ClassDef):
                    visit(node.body, prefix + node.name + ".")

    visit(tree.body, "")
    return out


def _numbered(pieces: list[Piece], n_lines: int) -> FileRegions:
    """Numbers regions in order of appearance; a name met again gets "#2", the top-level pieces share one region."""
    names: dict[str, int] = {}
    seen: Counter[str] = Counter()
    line_region = np.full(n_lines + 1, -1, dtype=np.int64)
    for name, start, stop in pieces:
        if name != TOP:
            seen[name] += 1
            name = name if seen[name] == 1 else f"{name}#{seen[name]}"
        line_region[start:stop] = names.setdefault(name, len(names))
    if (line_region < 0).any():  # comments and blanks before the first statement, the end of the file
        line_region[line_region < 0] = names.setdefault(TOP, len(names))
    return FileRegions(names=tuple(names), line_region=line_region)


def _parse(text: str) -> ast.Module | None:
    """The tree, or None; a lone carriage return ends a line for the parser alone, so such a text has no tree here."""
    if "\r" in text and text.count("\r") != text.count("\r\n"):
        return None
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# ---------------------------------------------------------------- contents

_WORD = re.compile(r"[^\W\d]\w*")
_ALONE = re.compile(r"^[ \t]*[rRbBuU]{0,2}(\"\"\"|'''|\"|')[\s\S]*?\1[ \t]*$", re.MULTILINE)
_LAYOUT = str.maketrans("", "", " \t\r\n\f()'\",;\\")


def region_texts(text: str, regions: FileRegions, wanted: Sequence[int]) -> list[str]:
    """The lines of each wanted region, joined."""
    lines = text.split("\n")
    order = np.argsort(regions.line_region[:-1], kind="stable")
    bounds = np.searchsorted(regions.line_region[:-1][order], [[r, r + 1] for r in wanted]).reshape(-1, 2)
    return ["\n".join([lines[i] for i in order[a:b].tolist()]) for a, b in bounds.tolist()]


def content_ids(texts: Sequence[str], path: str) -> np.ndarray:
    """A number for each text of one region, [n]: equal numbers mean equal contents."""
    exact = [_exact(text, path) for text in texts]
    distinct = sorted(set(exact))
    key = {e: e for e in distinct}
    if len(distinct) > 1 and is_python(path):
        skeleton = {e: _skeleton(e) for e in distinct}
        shared = Counter(skeleton.values())
        key = {e: _key(e) if shared[skeleton[e]] > 1 else e for e in distinct}
    number = {k: i for i, k in enumerate(sorted(set(key.values())))}
    return np.array([number[key[e]] for e in exact], dtype=np.int64)


@_remembered(8192)
def _exact(text: str, path: str) -> str:
    return "\n".join(filter(None, syntax_of(path).strip(text.split("\n"))))


@_remembered(8192)
def _skeleton(exact: str) -> str:
    """What is left when names, layout and lone strings are dropped: equal wherever the canonical forms are."""
    return digest(_WORD.sub("N", _ALONE.sub("", exact)).translate(_LAYOUT))


@_remembered(8192)
def _key(exact: str) -> str:
    """The canonical form of a region's text (methods are indented), or the text itself where it does not parse."""
    indented = exact[:1] in (" ", "\t")
    tree = _parse("if 1:\n" + exact if indented else exact)
    if tree is None:
        return exact
    try:
        return "=" + canonical(tree.body[0].body if indented and isinstance(tree.body[0], ast.If) else tree.body)
    except RecursionError:  # an expression nested too deeply to be walked
        return exact


# ---------------------------------------------------------------- blocks


def block_regions(texts: Sequence[str], path: str) -> list[FileRegions]:
    """Regions of the versions of a file that cannot be split by functions: the blocks between common lines.

    Separators are the normalised lines that stand exactly once in every version, in the same order; a block begins with
    the separators before it.
    """
    parts = [normalise(text, path) for text in texts]
    lines = [[line.strip() for line in kept] for kept, _ in parts]
    separators = _common_once(lines)
    number = _block_numbers(lines, separators)
    names = tuple(f"block {i}" for i in range(max(number.values(), default=0) + 1))
    out = []
    for text, (_, ranges), kept in zip(texts, parts, lines, strict=True):
        at = raw_lines(text, ranges[:, 0])
        line_region = np.zeros(text.count("\n") + 2, dtype=np.int64)
        for raw, line in zip(at.tolist(), kept, strict=True):
            if line in number:
                line_region[raw:] = number[line]
        out.append(FileRegions(names=names, line_region=line_region))
    return out


def _block_numbers(versions: list[list[str]], separators: list[str]) -> dict[str, int]:
    """The block that each separator begins or belongs to: those that follow each other in all versions share one."""
    if not separators:
        return {}
    places = []
    for version in versions:
        place = {line: i for i, line in enumerate(version)}
        places.append([place[line] for line in separators])
    apart = (np.diff(np.array(places), axis=1) != 1).any(axis=0)
    return dict(zip(separators, np.concatenate([[1], 1 + np.cumsum(apart)]).tolist(), strict=True))


def _common_once(versions: list[list[str]]) -> list[str]:
    """The lines that stand exactly once in every version, kept where their order agrees in all."""
    distinct = sorted({tuple(v) for v in versions})
    if not distinct:
        return []
    counts = [Counter(v) for v in distinct]
    chain = [line for line in distinct[0] if all(c[line] == 1 for c in counts)]
    for version in distinct[1:]:
        place = {line: i for i, line in enumerate(version)}
        chain = [chain[i] for i in _increasing([place[line] for line in chain])]
    return chain


def _increasing(values: list[int]) -> list[int]:
    """Indices of a longest increasing subsequence."""
    tails: list[int] = []  # index of the smallest end of a subsequence of each length
    ends: list[int] = []
    before = [-1] * len(values)
    for i, value in enumerate(values):
        at = bisect_left(ends, value)
        before[i] = tails[at - 1] if at else -1
        if at == len(tails):
            tails.append(i)
            ends.append(value)
        else:
            tails[at], ends[at] = i, value
    out = []
    i = tails[-1] if tails else -1
    while i >= 0:
        out.append(i)
        i = before[i]
    return out[::-1]
