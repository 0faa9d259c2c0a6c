"""Code in canonical form: two texts that differ in comments, layout, docstrings or local names give the same key.

Names are compared by scope (alpha-equivalence): a local variable may be called anything, but parameters keep their
names (they are part of the call), as do attributes, globals and everything that is not bound inside the function. Thus
`<` and `<=`, or two different globals, are never joined. Where a function can see its own names (`locals`, `eval`, a
class inside it) nothing is renamed.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

Env = dict[str, tuple[int, str]]  # name -> the binding it means; names that are not in it keep their text

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SEES_NAMES = {"locals", "eval", "exec", "vars", "dir", "globals"}
_FIELDS: dict[type, tuple[str, ...]] = {}  # node type -> the fields that carry meaning


def parse(code: str) -> ast.Module:
    """`ast.parse` without its warnings: an invalid escape in a rollout's code is no news. Raises what it raises."""
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(code)


def canonical(nodes: Iterable[ast.AST]) -> str:
    """A short key of the statements: equal keys mean equal up to comments, layout, docstrings and local names."""
    writer = _Writer()
    for node in _effective(list(nodes)):
        writer.node(node, {})
    return digest("\x01".join(writer.out))


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class _Writer:
    """Writes a tree as a list of words; each binding gets a number when it is first met."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.numbers: dict[tuple[int, str], str] = {}
        self.scopes = 0
        self.depth = 0  # of functions
        self.renames = True

    def name(self, name: str, env: Env) -> None:
        binding = env.get(name)
        if binding is None:
            self.out.append(name)
        else:
            self.out.append(self.numbers.setdefault(binding, f"\x02{len(self.numbers)}"))

    def node(self, node: Any, env: Env) -> None:
        kind = node.__class__
        if kind is ast.Name:
            self.name(node.id, env)
        elif kind is ast.Constant:
            self.out.append(f"{node.value.__class__.__name__}:{node.value!r}")
        elif kind in _FUNCTIONS:
            self.function(node, env)
        elif kind is ast.Lambda:
            self.lambda_(node, env)
        elif kind in _COMPREHENSIONS:
            self.comprehension(node, env)
        else:
            self.fields(node, env)

    def fields(self, node: Any, env: Env) -> None:
        kind = node.__class__
        out = self.out
        out.append(kind.__name__)
        names = _FIELDS.get(kind)
        if names is None:
            names = _FIELDS[kind] = tuple(f for f in kind._fields if f not in ("ctx", "type_comment", "kind"))
        bound = _BOUND_FIELDS.get(kind, ())
        for name in names:
            value = getattr(node, name)
            if isinstance(value, list):
                value = _effective(value) if name == "body" else value
                out.append(f"[{len(value)}")  # the length keeps neighbours apart
                for item in value:
                    if isinstance(item, ast.AST):
                        self.node(item, env)
                    else:
                        self.name(str(item), env) if name == "names" else out.append(repr(item))
            elif isinstance(value, ast.AST):
                self.node(value, env)
            elif name in bound and value is not None:
                self.name(value, env)
            else:
                out.append(repr(value))
        if kind is ast.alias and node.asname is None:
            self.name(node.name.split(".")[0], env)

    def function(self, node: Any, env: Env) -> None:
        self.out.append(node.__class__.__name__)
        self.name(node.name, env)
        self.many(node.decorator_list, env)
        self.node(node.args, env)
        if node.returns is not None:
            self.out.append("->")
            self.node(node.returns, env)
        params = _parameters(node.args)
        inner = {k: v for k, v in env.items() if k not in params}
        outermost = self.depth == 0
        if outermost:
            self.renames = not _sees_its_names(node)
        if self.renames:
            self.bind(inner, _own_names(node.body) - params)
        self.depth += 1
        self.many(_effective(node.body), inner)
        self.depth -= 1
        if outermost:
            self.renames = True

    def lambda_(self, node: ast.Lambda, env: Env) -> None:
        self.out.append("Lambda")
        args = node.args
        for default in (*args.defaults, *(d for d in args.kw_defaults if d is not None)):
            self.node(default, env)
        inner = dict(env)
        self.bind(inner, _parameters(args))
        for group in (args.posonlyargs, args.args, [args.vararg], args.kwonlyargs, [args.kwarg]):
            self.out.append(f"[{len(group)}")
            for arg in group:
                self.name("" if arg is None else arg.arg, inner)
        self.out.append(repr([d is None for d in args.kw_defaults]) + str(len(args.defaults)))
        self.node(node.body, inner)

    def comprehension(self, node: Any, env: Env) -> None:
        self.out.append(node.__class__.__name__)
        self.node(node.generators[0].iter, env)  # evaluated outside
        inner = dict(env)
        targets = (n for g in node.generators for n in ast.walk(g.target))
        self.bind(inner, {n.id for n in targets if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})
        for i, generator in enumerate(node.generators):
            self.out.append(f"for{generator.is_async}")
            self.node(generator.target, inner)
            if i:
                self.node(generator.iter, inner)
            self.many(generator.ifs, inner)
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                self.node(getattr(node, part), inner)

    def bind(self, env: Env, names: set[str]) -> None:
        if not self.renames:
            return
        self.scopes += 1
        env.update((name, (self.scopes, name)) for name in names)

    def many(self, nodes: list[Any], env: Env) -> None:
        self.out.append(f"[{len(nodes)}")
        for node in nodes:
            self.node(node, env)


# Fields that hold the name of a binding as plain text.
_BOUND_FIELDS: dict[type, tuple[str, ...]] = {
    ast.ExceptHandler: ("name",),
    ast.MatchAs: ("name",),
    ast.MatchStar: ("name",),
    ast.MatchMapping: ("rest",),
    ast.alias: ("asname",),
    ast.ClassDef: ("name",),
}


def _effective(body: list[Any]) -> list[Any]:
    """Without docstrings and other constants that stand alone: they do nothing."""
    return [n for n in body if not (n.__class__ is ast.Expr and n.value.__class__ is ast.Constant)]


def _parameters(args: ast.arguments) -> set[str]:
    several = [*args.posonlyargs, *args.args, *args.kwonlyargs, *(a for a in (args.vararg, args.kwarg) if a)]
    return {a.arg for a in several}


def _own_scope(nodes: list[Any]) -> Iterator[Any]:
    """The nodes of one function scope, without the inside of nested scopes (but with walrus targets inside them)."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, _COMPREHENSIONS):
            yield from (n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        elif not isinstance(node, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(node))


def _own_names(body: list[Any]) -> set[str]:
    """The names that a function body binds in its own scope, those declared global or nonlocal left out."""
    bound: set[str] = set()
    foreign: set[str] = set()
    for node in _own_scope(body):
        kind = node.__class__
        if kind is ast.Name:
            if node.ctx.__class__ is not ast.Load:
                bound.add(node.id)
        elif kind in _FUNCTIONS:
            bound.add(node.name)
        elif kind is ast.alias:
            bound.add(node.asname or node.name.split(".")[0])
        elif kind in (ast.Global, ast.Nonlocal):
            foreign.update(node.names)
        elif kind in _BOUND_FIELDS:
            bound.update(v for f in _BOUND_FIELDS[kind] if (v := getattr(node, f)) is not None)
    return bound - foreign


def _sees_its_names(node: ast.AST) -> bool:
    return any(isinstance(n, ast.ClassDef) or (isinstance(n, ast.Name) and n.id in _SEES_NAMES) for n in ast.walk(node))
