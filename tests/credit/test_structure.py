"""Structure as the fallback: functions, then statements, then code that does not parse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_anchors import rows_from

from didpo.credit.structure import fragments, structural_anchors

CODE = ["class C:", "    def f(self, x):", "        y = x", "        return y", "def g():", "    pass", "z = 1"]


def test_functions_and_statements() -> None:
    functions, statements = fragments(CODE, "a.py")
    assert [(f.signature, f.start, f.stop) for f in functions] == [
        (("function", "f", 2), 1, 4),
        (("function", "g", 0), 4, 6),
    ]
    assert [(s.kind, s.name, s.start, s.stop) for s in statements] == [
        ("Assign", "f", 2, 3),
        ("Return", "f", 3, 4),
        ("Pass", "g", 5, 6),
        ("Assign", "", 6, 7),
    ]


def test_code_that_does_not_parse_is_one_opaque_fragment() -> None:
    for path in ("a.py", "a.unknown"):
        functions, statements = fragments(["def f(:", "  x"], path)
        assert functions == [] and [(s.kind, s.start, s.stop) for s in statements] == [("opaque", 0, 2)]
    assert fragments([], "a.py") == ([], [])


def test_similar_functions_of_one_signature_join() -> None:
    one = ["def f(x):", "    total = x + 1", "    return total"]
    two = ["def f(x):", "    total = x + 2", "    return total"]
    other = ["def f(x, y):", "    total = x + 1", "    return total"]
    rows = rows_from(*[[("add", lines, None)] for lines in (one, two, other)])
    (anchor,) = structural_anchors(rows)
    assert [(o.row, o.start, o.stop) for o in anchor.occurrences] == [(0, 0, 3), (1, 0, 3)]
    assert anchor.length == 3 and anchor.n_rows == 2
    assert structural_anchors(rows, eta=0.999)[0].length == 1  # statements, since no functions are alike


def test_only_changed_lines_count() -> None:
    lines = ["def f(x):", "    a = x", "    return a"]
    rows = rows_from(*[[("add", lines, [False, True, True])]] * 2)
    assert [(o.start, o.stop) for o in structural_anchors(rows)[0].occurrences] == [(1, 3)] * 2
    assert structural_anchors(rows_from(*[[("add", lines, [False] * 3)]] * 2)) == []


LANGUAGES = {
    "javascript": ("a.js", ["class P {", "  get(x) {", "    return x;", "  }", "}"], ("get", 1), (1, 4), (2, 3)),
    "typescript": ("a.ts", ["export function f(a: number): number {", "  return a;", "}"], ("f", 1), (0, 3), (1, 2)),
    "c": ("a.c", ["int *f(int a, int b) {", "  return 0;", "}"], ("f", 2), (0, 3), (1, 2)),
    "cpp": ("a.cc", ["template <class T>", "T f(T a) {", "  return a;", "}"], ("f", 1), (1, 4), (2, 3)),
    "go": ("a.go", ["package p", "func f(a int) int {", "\tb := a", "\treturn b", "}"], ("f", 1), (1, 5), (2, 3)),
    "rust": (
        "a.rs",
        ["impl P {", "  fn f(&self) -> i32 {", "    self.x", "  }", "}"],
        ("f", 1),
        (1, 4),
        (2, 3),
    ),
    "java": ("a.java", ["class P {", "  int f(int a) {", "    return a;", "  }", "}"], ("f", 1), (1, 4), (2, 3)),
    "ruby": ("a.rb", ["def f(a)", "  a + 1", "end"], ("f", 1), (0, 3), (1, 2)),
    "c_sharp": ("a.cs", ["class P {", "  int F(int a) {", "    return a;", "  }", "}"], ("F", 1), (1, 4), (2, 3)),
    "php": ("a.php", ["<?php", "function f($a) {", "  return $a;", "}"], ("f", 1), (1, 4), (2, 3)),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_functions_of_other_languages(language: str) -> None:
    for package in ("tree_sitter", f"tree_sitter_{language}"):
        pytest.importorskip(package, reason="the extra `languages` is not installed")
    path, lines, (name, arity), span, statement = LANGUAGES[language]
    functions, statements = fragments(lines, path)
    assert [(f.signature, (f.start, f.stop)) for f in functions] == [(("function", name, arity), span)]
    assert statement in [(s.start, s.stop) for s in statements if s.name == name]
    _, (opaque,) = fragments(["f((", "  {"], path) if language != "php" else fragments(["<?php f((", "  {"], path)
    assert (opaque.kind, opaque.start, opaque.stop) == ("opaque", 0, 2)


def test_similar_functions_of_another_language_join() -> None:
    for package in ("tree_sitter", "tree_sitter_javascript"):
        pytest.importorskip(package, reason="the extra `languages` is not installed")
    codes = [["function f(x) {", f"  const total = x + {n};", "  return total;", "}"] for n in (1, 2)]
    rows = rows_from(*[[("add", lines, None)] for lines in codes])
    in_js = [replace(row, roots=tuple(replace(root, path="a.js") for root in row.roots)) for row in rows]
    (anchor,) = structural_anchors(in_js)
    assert [(o.row, o.start, o.stop) for o in anchor.occurrences] == [(0, 0, 4), (1, 0, 4)]
