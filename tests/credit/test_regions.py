"""Regions of files, comparison of contents, and where edits stand."""

from __future__ import annotations

import ast
import warnings

import numpy as np
import pytest
from groups import whole_file

from didpo.credit.canonical import canonical
from didpo.credit.diffs import rows_of
from didpo.credit.places import places_of, resolved
from didpo.credit.regions import block_regions, content_ids, file_regions, raw_lines, region_texts
from didpo.errors import UserError
from didpo.types import EditSpan, Step, Trajectory, TrajectoryGroup


def owners(text: str) -> list[str]:
    """The region of each line."""
    regions = file_regions(text)
    return [regions.names[r] for r in regions.line_region[:-1]]


def test_functions_methods_and_top_level() -> None:
    text = (
        "import os\n"  # top
        "\n"
        "@cache\n"  # f
        "def f(a):\n"
        "    def inner():\n"
        "        return 1\n"
        "    return inner()\n"
        "x = 1\n"  # top
        "class C:\n"
        "    y = 2\n"
        "    @property\n"
        "    def m(self):\n"
        "        return 3\n"
        "async def g(): pass\n"
        "if x:\n"  # top
        "    def h(): pass\n"
        "def f(): pass"  # f again
    )
    assert owners(text) == ["", "", "f", "f", "f", "f", "f", "", "C", "C", "C.m", "C.m", "C.m", "g", "", "", "f#2"]


def test_the_margin_is_not_trusted_inside_strings_and_brackets() -> None:
    assert owners('def f():\n    x = """\ndef g():\n"""\n    return x\n') == ["f"] * 5 + [""]
    assert owners("def f():\n    x = '''\ndef g():\n'''\n    return x\n") == ["f"] * 5 + [""]
    assert (
        owners('def f():\n    """(."""\n    return 1\ndef g():\n    """Two\n    (lines)."""') == ["f"] * 3 + ["g"] * 3
    )
    assert owners("def f(\na,\nb):\n    return a\n") == ["f"] * 4 + [""]
    assert owners("def f(a,\n      b,\n):\n    return a\nx = [\n1]\n")[:4] == ["f"] * 4


def test_a_broken_function_is_still_a_region() -> None:
    assert owners("def f():\n    return (\n\ndef g():\n    return 1") == ["f", "f", "f", "g", "g"]
    assert not file_regions("x = (\n").split
    assert owners("") == [""] and owners("\n\n# only\n") == [""] * 4


def test_carriage_returns_and_odd_characters() -> None:
    assert owners("def f():\r\n    return 1\r\nx = 1\r\n") == ["f", "f", "", ""]
    assert owners("def f():\n    '\u2028\x0c'\n    return 1\nx = 1") == ["f", "f", "f", ""]


def test_region_texts_join_the_lines_of_a_region() -> None:
    text = "import a\ndef f():\n    pass\nimport b"
    regions = file_regions(text)
    got = region_texts(text, regions, range(len(regions.names)))
    assert dict(zip(regions.names, got, strict=True)) == {"": "import a\nimport b", "f": "def f():\n    pass"}


def same(*texts: str) -> bool:
    return len(set(content_ids(list(texts), "a.py").tolist())) == 1


def test_contents_equal_up_to_comments_layout_and_local_names() -> None:
    base = "def f(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total"
    assert same(base, base.replace("total", "acc"), base.replace("for x in xs", "for v in  xs").replace("+= x", "+= v"))
    layout = "def f(xs):\n    '''Sum.'''\n\n    total = (0)  # start\n    for x in xs: total += x\n    return (total)"
    assert same(base, layout)
    assert same("def f(a):\n    return [x for x in a if x > 0]", "def f(a):\n    return [y for y in a if y > 0]")
    assert same(
        "    def m(self):\n        q = 1\n        return q", "    def m(self):\n        r = 1\n        return r"
    )
    assert same(
        "def f(a):\n    return sorted(a, key=lambda t: t[1])", "def f(a):\n    return sorted(a, key=lambda u: u[1])"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(a):\n    return a < 1", "def f(a):\n    return a <= 1"),
        ("def f(a):\n    return len(a)", "def f(a):\n    return sum(a)"),  # globals
        ("def f(a):\n    return a", "def f(b):\n    return b"),  # parameters can be named in a call
        ("def f(a):\n    x = 1; y = 2\n    return x - y", "def f(a):\n    x = 1; y = 2\n    return y - x"),
        (
            "def f(a):\n    return [x for x in a], x",
            "def f(a):\n    return [y for y in a], y",
        ),  # the last one is global
        ("def f(a):\n    global x\n    x = 1", "def f(a):\n    global y\n    y = 1"),
        ("def f(a):\n    x = 1\n    return locals()", "def f(a):\n    y = 1\n    return locals()"),
        ("def f(a):\n    import os as x\n    return x", "def f(a):\n    import re as x\n    return x"),
        ("x = 1", "y = 1"),  # top level: names are global
        ("def f(a):\n    return 1", "def f(a):\n    return True"),
        ("def f(a):\n    return '1'", "def f(a):\n    return b'1'"),
        ("def f(a):\n    return a.x", "def f(a):\n    return a.y"),
        ("def f(a):\n    return a(x=1)", "def f(a):\n    return a(y=1)"),
        ("def f(a):\n  if a:\n    b()\n  c()", "def f(a):\n  if a:\n    b()\n    c()"),
        ("def f(a):\n    return (", "def f(a):\n    return ["),  # neither parses
    ],
)
def test_what_may_behave_differently_is_never_joined(one: str, other: str) -> None:
    assert not same(one, other)
    tree = [canonical(ast.parse(t).body) for t in (one, other) if not t.endswith(("(", "["))]
    assert len(tree) == len(set(tree))


def test_equal_text_that_does_not_parse_is_equal() -> None:
    assert same("def f(:\n    x", "def f(:  # c\n\n    x")


def test_blocks_lie_between_common_lines() -> None:
    a = "start\none\nmiddle\ntwo\nend"
    b = "start\nONE\nmore\nmiddle\nTWO\nend"
    first, second = block_regions([a, b], "x.js")
    assert first.line_region.tolist()[:-1] == [1, 1, 2, 2, 3]
    assert second.line_region.tolist()[:-1] == [1, 1, 1, 2, 2, 3]
    # common lines that follow each other everywhere make one block, however many
    same = block_regions(["a\nb\nc\n1\nd\ne", "a\nb\nc\n2\nd\ne"], "x.js")
    assert same[0].line_region.tolist()[:-1] == [1, 1, 1, 1, 2, 2]
    lone = block_regions(["a\nb", "c"], "x.js")
    assert all(set(r.line_region.tolist()) == {0} for r in lone)


def test_raw_lines() -> None:
    assert raw_lines("a\nbé\n\nc", np.array([0, 1, 2, 4, 5, 6])).tolist() == [0, 0, 1, 1, 2, 3]


# ---------------------------------------------------------------- edits to regions


def patch(before: str, response: str, **fields) -> Step:
    return Step(response=response, files_before={"m.py": before}, **fields)


def regions_of(step: Step) -> list[list[str]]:
    """For each root the region names of its lines."""
    group = resolved(TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[step])]))
    rows = rows_of(group, gate="none")
    places = places_of(group, rows)
    return [[places.names[r][1] if r >= 0 else "?" for r in regions.tolist()] for regions in places.lines[0]]


FILE = "def f():\n    a = 1\n    return a\n\n\ndef g():\n    b = 2\n    return b\n"


def test_several_edits_of_one_step() -> None:
    # the first edit makes f two lines longer; the second stands in g, both before and after
    response = (
        "<edit m.py>\n<search>    a = 1\n</search>\n<replace>    a = 1\n    c = 3\n    d = 4\n</replace>\n"
        "<search>    b = 2\n</search>\n<replace>    b = 5\n</replace>\n</edit>"
    )
    assert regions_of(patch(FILE, response)) == [["f"], ["f", "f", "f"], ["g"], ["g"]]


def test_a_later_edit_above_moves_the_lines_of_an_earlier_one() -> None:
    response = (
        "<edit m.py>\n<search>    b = 2\n</search>\n<replace>    b = 5\n</replace>\n"
        "<search>    a = 1\n</search>\n<replace>    a = 1\n    a = 2\n    a = 3\n    a = 4\n</replace>\n</edit>"
    )
    assert regions_of(patch(FILE, response)) == [["g"], ["g"], ["f"], ["f"] * 4]
    response = (
        "<edit m.py>\n<search>    b = 2\n</search>\n<replace>    b = 5\n</replace>\n"
        '<insert line="0">import os\nimport re</insert>\n</edit>'
    )
    assert regions_of(patch(FILE, response)) == [["g"], ["g"], ["", ""]]


def test_deleted_lines_belong_to_the_file_before() -> None:
    response = "<edit m.py>\n<search>def f():\n    a = 1\n    return a\n</search>\n<replace></replace>\n</edit>"
    assert regions_of(patch(FILE, response)) == [["f", "f", "f"]]


def test_an_overwrite_without_files_tells_its_file() -> None:
    step = whole_file(FILE, before=None)
    step.files_after = None
    group = resolved(TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[step])]))
    assert places_of(group, rows_of(group)).names == [("main.py", "f"), ("main.py", "g")]


def test_content_numbers_per_row() -> None:
    other = FILE.replace("b = 2", "b = 3")
    steps = [whole_file(FILE), whole_file(other), whole_file(FILE.replace("a", "z", 0)), whole_file("x = 1\n")]
    group = resolved(TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[s]) for s in steps]))
    rows = rows_of(group)
    places = places_of(group, rows)
    f, g = places.names.index(("main.py", "f")), places.names.index(("main.py", "g"))
    assert places.content[f].tolist() == [0, 0, 0, -1]
    assert places.content[g][0] == places.content[g][2] != places.content[g][1]
    assert places.edited(rows)[f] == [0, 1, 2]


def test_a_recorded_edit_must_stand_in_its_response() -> None:
    step = Step(response="abc", edits=[EditSpan(path="a.py", kind="add", text="xyz", start=0, end=3)])
    with pytest.raises(UserError, match="trajectory 0, step 0"):
        resolved(TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[step])]))


def test_parsing_code_of_rollouts_gives_no_warnings() -> None:
    invalid = ["def f(a):\n    return a == '\\d' (\n", "def f(b):\n    x = ')\\w'\n    return x is 1\n"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in invalid:
            file_regions(text)
        content_ids(["def g():\n    p = '\\d'\n    return p\n", "def g():\n    q = '\\d'\n    return q\n"], "m.py")
    assert caught == []
