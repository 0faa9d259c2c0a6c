"""Places that match without being spelled alike: functions equal up to local names and layout."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from didpo.credit.canonical import canonical
from didpo.credit.matching import Group, Lines, Text

_HEAD = re.compile(r"(?:async\s+)?def\s+(\w+)")


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
