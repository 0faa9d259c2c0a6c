"""Fragments by the structure of the code, for tasks whose text shares no anchor: functions, then statements.

A fragment has a signature (kind, name, arity); fragments of one edit kind with one signature match when their text is
at least `eta` like the representative's. Python is parsed by `ast`; the files of other languages by tree-sitter where
the extra `languages` is installed. Code that does not parse is one opaque fragment. Only fragments with changed lines
count, each cut to the unbroken run of changed lines that begins first in it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from rapidfuzz.distance import Indel

from didpo.credit.anchors import FoundAnchor, Occurrence, groupability
from didpo.credit.diffs import Row

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_LANGUAGES = {  # extension -> package of the grammar (it holds the grammar itself), function that gives it
    **dict.fromkeys(("js", "jsx", "mjs"), ("tree_sitter_javascript", "language")),
    **dict.fromkeys(("c", "h"), ("tree_sitter_c", "language")),
    **dict.fromkeys(("cpp", "cc", "hpp"), ("tree_sitter_cpp", "language")),
    "ts": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rs": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    "rb": ("tree_sitter_ruby", "language"),
    "cs": ("tree_sitter_c_sharp", "language"),
    "php": ("tree_sitter_php", "language_php"),
}
_FUNCTIONS = ("function", "method", "constructor")  # in a node's type; "func_literal" and lambdas are expressions
_CONTAINERS = ("class", "impl", "interface", "module", "namespace", "struct", "trait", "enum")
_WRAPPERS = ("export_statement", "template_declaration")  # their last part is the declaration


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """Normalised lines start..stop of some code. arity: parameters of a function, children of a statement."""

    kind: str
    name: str
    arity: int
    start: int
    stop: int

    @property
    def signature(self) -> tuple[str, str, int]:
        return self.kind, self.name, self.arity


def fragments(lines: Sequence[str], path: str) -> tuple[list[Fragment], list[Fragment]]:
    """(functions, statements) of normalised lines; one "opaque" statement where they don't parse."""
    if not lines:
        return [], []
    extension = path.rsplit(".", 1)[-1].lower()
    if extension in ("py", "pyi"):
        found = _python(lines)
    elif extension in _LANGUAGES and _installed(_LANGUAGES[extension][0]):
        found = _tree_sitter(lines, *_LANGUAGES[extension])
    else:
        found = None
    return found or ([], [Fragment(kind="opaque", name="", arity=0, start=0, stop=len(lines))])


def structural_anchors(
    rows: Sequence[Row], *, eta: float = 0.8, worth: Callable[[float, int], float] | None = None
) -> list[FoundAnchor]:
    """Anchors from functions; from statements where functions give none. Order: groupability, then content.

    `worth(length, n_rows)` is the groupability, by default `anchors.groupability` in its published form.
    """
    score = worth or (lambda length, n: float(groupability(length, n)))
    parsed = [
        [fragments(root.lines, root.path) if root.changed.any() else ([], []) for root in row.roots] for row in rows
    ]
    for level in (0, 1):
        groups: dict[tuple[str, tuple[str, str, int]], list[tuple[Occurrence, tuple[str, ...]]]] = {}
        for r, row in enumerate(rows):
            for q, root in enumerate(row.roots):
                for fragment in parsed[r][q][level]:
                    span = _changed_run(root.changed, fragment)
                    if span:
                        place = Occurrence(row=r, root=q, start=span[0], stop=span[1])
                        groups.setdefault((root.kind, fragment.signature), []).append((place, root.lines[slice(*span)]))
        found = [a for (kind, _), places in groups.items() for a in _alike(kind, places, eta, score)]
        if found:
            return sorted(found, key=lambda a: (-a.groupability, -a.length, a.kind, a.lines))
    return []


def _changed_run(changed: np.ndarray, fragment: Fragment) -> tuple[int, int] | None:
    inside = np.flatnonzero(changed[fragment.start : fragment.stop])
    if not len(inside):
        return None
    gaps = np.flatnonzero(np.diff(inside) > 1)
    last = inside[gaps[0]] if len(gaps) else inside[-1]
    return fragment.start + int(inside[0]), fragment.start + int(last) + 1


def _alike(
    kind: str,
    places: list[tuple[Occurrence, tuple[str, ...]]],
    eta: float,
    worth: Callable[[float, int], float],
) -> list[FoundAnchor]:
    """Anchors among places of one signature: each place joins the first representative it is like, in a fixed order."""
    counts = Counter(lines for _, lines in places)
    heads: list[tuple[str, ...]] = []
    head_of: dict[tuple[str, ...], tuple[str, ...]] = {}
    for lines in sorted(counts, key=lambda t: (-counts[t], t)):
        text = "\n".join(lines)
        like = (h for h in heads if Indel.normalized_similarity("\n".join(h), text) >= eta - 1e-9)
        head_of[lines] = next(like, lines)
        if head_of[lines] is lines:
            heads.append(lines)
    out = []
    for head in heads:
        once: dict[int, Occurrence] = {}
        for place, lines in places:
            if head_of[lines] is head:
                once.setdefault(place.row, place)
        if len(once) >= 2:
            taken = tuple(once[row] for row in sorted(once))
            length = float(np.mean([o.stop - o.start for o in taken]))
            out.append(
                FoundAnchor(
                    kind=kind,
                    lines=head,
                    occurrences=taken,
                    length=length,
                    n_rows=len(taken),
                    groupability=float(worth(length, len(taken))),
                )
            )
    return out


def _python(lines: Sequence[str]) -> tuple[list[Fragment], list[Fragment]] | None:
    margin = len(lines[0]) - len(lines[0].lstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse("\n".join(line.removeprefix(lines[0][:margin]) for line in lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions, statements = [], []
    stack: list[ast.stmt] = list(reversed(tree.body))
    while stack:
        node = stack.pop()
        start, stop = node.lineno - 1, node.end_lineno or node.lineno
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            args = node.args
            arity = len(args.posonlyargs) + len(args.args) + len(args.kwonlyargs)
            functions.append(Fragment(kind="function", name=node.name, arity=arity, start=start, stop=stop))
        elif isinstance(node, ast.ClassDef):
            stack.extend(reversed(node.body))
            continue
        statements += _statements([node], functions[-1].name if functions and functions[-1].start == start else "")
    return functions, statements


def _statements(nodes: list[ast.stmt], owner: str) -> list[Fragment]:
    """The statements of a function's body (or of the top level), compound ones whole."""
    out = []
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            out += _statements(node.body, owner)
        else:
            arity = sum(1 for _ in ast.iter_child_nodes(node))
            start, stop = node.lineno - 1, node.end_lineno or node.lineno
            out.append(Fragment(kind=type(node).__name__, name=owner, arity=arity, start=start, stop=stop))
    return out


def _installed(package: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("tree_sitter", package))


@cache
def _parser(package: str, grammar: str) -> Parser:
    from tree_sitter import Language, Parser

    return Parser(Language(getattr(importlib.import_module(package), grammar)()))


def _tree_sitter(lines: Sequence[str], package: str, grammar: str) -> tuple[list[Fragment], list[Fragment]] | None:
    root = _parser(package, grammar).parse("\n".join(lines).encode("utf-8", "replace")).root_node
    if root.has_error:
        return None
    functions, statements = [], []
    stack = list(reversed(root.named_children))
    while stack:
        node = stack.pop()
        body = node.child_by_field_name("body")
        if body is not None and any(word in node.type for word in _FUNCTIONS):
            name, parameters = _declared(node)
            functions.append(_fragment(node, kind="function", name=name, arity=parameters))
            inside = body.named_children
            if [child.type for child in inside] == ["statement_list"]:  # Go has one more level
                inside = inside[0].named_children
            statements += [_fragment(c, kind=c.type, name=name, arity=c.named_child_count) for c in inside]
        elif node.type in _WRAPPERS and node.named_children:
            stack.append(node.named_children[-1])
        elif body is not None and any(word in node.type for word in _CONTAINERS):
            stack.extend(reversed(body.named_children))
        else:
            statements.append(_fragment(node, kind=node.type, name="", arity=node.named_child_count))
    return functions, statements


def _fragment(node: Node, *, kind: str, name: str, arity: int) -> Fragment:
    row, column = node.end_point  # a node may take the line end with it
    stop = row + 1 if column else max(row, node.start_point[0] + 1)
    return Fragment(kind=kind, name=name, arity=arity, start=node.start_point[0], stop=stop)


def _declared(node: Node) -> tuple[str, int]:
    """Name and number of parameters of a function; in C and C++ both stand in its declarator."""
    name, parameters = node.child_by_field_name("name"), node.child_by_field_name("parameters")
    inner = node.child_by_field_name("declarator")
    while inner is not None:
        parameters = parameters or inner.child_by_field_name("parameters")
        name, inner = inner, inner.child_by_field_name("declarator")
    text = name.text.decode("utf-8", "replace") if name is not None and name.text is not None else ""
    return text, parameters.named_child_count if parameters is not None else 0
