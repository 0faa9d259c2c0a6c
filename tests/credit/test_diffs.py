"""Root diffs: normalisation, raw ranges, the gate; and the cases that tripped others."""

from __future__ import annotations

import random

import numpy as np
import pytest
from reference import ref_lcs

from didpo.credit.comments import syntax_of
from didpo.credit.diffs import Gate, Root, common_lines, normalise, rows_of
from didpo.errors import UserError
from didpo.types import EditSpan, Step, StopReason, Trajectory, TrajectoryGroup


def code(path: str, text: str) -> list[str]:
    return syntax_of(path).strip(text.split("\n"))


def roots_of(step: Step, gate: Gate = "lines") -> tuple[Root, ...]:
    (row,) = rows_of(TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[step])]), gate=gate)
    return row.roots


def overwrite(text: str, before: str | None = None, path: str = "a.py") -> Step:
    response = f"<edit {path}>\n<code>\n{text}</code>\n</edit>"
    return Step(response=response, files_before=None if before is None else {path: before})


def patch(before: str, *pairs: tuple[str, str], path: str = "a.py") -> Step:
    body = "".join(f"<search>\n{old}</search>\n<replace>\n{new}</replace>\n" for old, new in pairs)
    return Step(response=f"<edit {path}>\n{body}</edit>", files_before={path: before})


# ---------------------------------------------------------------- comments


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("x = 1  # why", "x = 1"),
        ('x = "#"  # why', 'x = "#"'),
        ("x = '# no' + \"# no\" # yes", "x = '# no' + \"# no\""),
        ('x = "a\\"# in" # out', 'x = "a\\"# in"'),
        ("x = r'\\' # out", "x = r'\\' # out"),  # the backslash keeps the quote open, also in a raw string
        ('x = f"{d["#"]}" # out', 'x = f"{d["#"]}"'),  # Python 3.12
        ('x = f"{{#" # out', 'x = f"{{#"'),
        ('x = """a # in""" # out', 'x = """a # in"""'),
        ("   # only", ""),
        ("x = 'open # in", "x = 'open # in"),  # does not parse
        ("x\t \r", "x"),
        ("x = 1 \u2028 # \u2028", "x = 1 \u2028"),
        ("x\f", "x\f"),
    ],
)
def test_python_comments(line: str, kept: str) -> None:
    assert code("a.py", line) == [kept]


def test_strings_over_several_lines_are_code() -> None:
    text = 'a = """ # in\nstill # in\n\'\'\' # in\n""" # out\nb = \'x\\\ny # in\' # out\n# gone\nc'
    assert code("a.py", text) == ['a = """ # in', "still # in", "''' # in", '"""', "b = 'x\\", "y # in'", "", "c"]


@pytest.mark.parametrize(
    ("path", "text", "kept"),
    [
        ("a.js", "let u = 'http://x' // c\nlet t = `// in\n// in` /* c */\n/* a\nb */ c", None),
        ("q.sql", "-- c\nselect '--', 'it''s -- in' -- c\n/* a\nb */ x", ["", "select '--', 'it''s -- in'", "", " x"]),
        ("m.rs", "fn f<'a>(x: &'a str) // don't", ["fn f<'a>(x: &'a str)"]),
        ("run.sh", "n=${#a} # c\n# c", ["n=${#a}", ""]),
        ("a.css", "a { color: red } /* c */", ["a { color: red }"]),
        ("a.unknown", "x # // -- kept  ", ["x # // -- kept"]),
        ("Makefile2", "# kept", ["# kept"]),
    ],
)
def test_comments_by_extension(path: str, text: str, kept: list[str] | None) -> None:
    if kept is None:
        kept = ["let u = 'http://x'", "let t = `// in", "// in`", "", " c"]
    assert code(path, text) == kept


def test_a_line_means_the_same_whatever_was_seen_before() -> None:
    assert code("a.py", 'x = """\n# in\n"""') == ['x = """', "# in", '"""']
    assert code("a.py", "# in") == [""]
    assert code("a.py", 'x = """\n# in\n"""') == ['x = """', "# in", '"""']


# ---------------------------------------------------------------- lines and ranges


def test_ranges_are_those_of_the_raw_response() -> None:
    text = "# head\n\na = 1  # note\n   \nb = 'é漢🙂'\t\nc\r\n"
    step = overwrite(text)
    (root,) = roots_of(step)
    assert root.lines == ("a = 1", "b = 'é漢🙂'", "c")
    assert [step.response[a:b] for a, b in root.ranges.tolist()] == ["a = 1  # note", "b = 'é漢🙂'\t", "c\r"]


def test_only_line_feeds_end_a_line() -> None:
    lines, _ = normalise("a\rb\x0bc\u2028d\u0085e\fg\r\nh", "x.txt")
    assert lines == ["a\rb\x0bc\u2028d\u0085e\fg", "h"]
    assert normalise("", "x.py")[0] == [] and normalise("\n\n", "x.py")[1].shape == (0, 2)


def test_every_edit_of_a_response_counts() -> None:
    response = (
        "<edit a.py>\n<search>\nx = 1\n</search>\n<replace>\nx = 2\n</replace>\n<search>\ny\n</search>\n"
        "<replace>\nz\n</replace>\n</edit>\n<edit b.py>\n<code>\nq = 0\n</code>\n</edit>"
    )
    roots = roots_of(Step(response=response, files_before={"a.py": "x = 1\ny\n"}))
    assert [(r.path, r.kind, r.lines) for r in roots] == [
        ("a.py", "del", ("x = 1",)),
        ("a.py", "add", ("x = 2",)),
        ("a.py", "del", ("y",)),
        ("a.py", "add", ("z",)),
        ("b.py", "overwrite", ("q = 0",)),
    ]


def test_failed_rollouts_and_refused_edits_have_no_roots() -> None:
    refused = patch("debug = 1\nx = 0\ndebug = 1\n", ("debug = 1\n", "debug = 2\n"))
    failed = Trajectory(steps=[overwrite("a\n")], stop_reason=StopReason.SANDBOX_ERROR)
    group = TrajectoryGroup(task_id="t", trajectories=[failed, Trajectory(steps=[refused, overwrite("b\n")])])
    rows = rows_of(group)
    assert [(r.trajectory, r.step, len(r.roots)) for r in rows] == [(0, 0, 0), (1, 0, 0), (1, 1, 1)]
    assert rows[2].roots[0].row == 2


def test_an_edit_that_is_not_where_it_says_is_refused() -> None:
    step = Step(response="abc", edits=[EditSpan(path="a.py", kind="add", text="bc", start=0, end=2)])
    with pytest.raises(ValueError, match="not the text at 0:2"):
        roots_of(step)
    with pytest.raises(UserError, match="did you mean 'lines'"):
        rows_of(TrajectoryGroup(task_id="t", trajectories=[]), gate="line")  # type: ignore[arg-type]


# ---------------------------------------------------------------- the gate


def gates(step: Step, gate: Gate = "lines") -> list[list[int]]:
    return [root.changed.astype(int).tolist() for root in roots_of(step, gate)]


def test_lines_written_again_are_no_change() -> None:
    step = overwrite("a\nB\nc\nd\n", "a\nb\nc\n")
    assert gates(step) == [[0, 1, 0, 1]]
    assert gates(step, "payload") == [[1, 1, 1, 1]] == gates(step, "none")


def test_byte_equal_payload() -> None:
    step = overwrite("a\nb\n", "a\nb\n")
    assert gates(step) == [[0, 0]] == gates(step, "payload")
    assert gates(step, "none") == [[1, 1]]


def test_new_comments_and_blank_lines_are_no_change() -> None:
    assert gates(overwrite("# new\na  # note\n\nb\n", "a\nb\n")) == [[0, 0]]


def test_a_moved_line_is_a_change() -> None:
    assert sum(gates(overwrite("b\na\n", "a\nb\n"))[0]) == 1


def test_new_file_is_all_change() -> None:
    assert gates(overwrite("a\nb\n")) == [[1, 1]]


def test_patch_context_is_no_change() -> None:
    step = patch("def f():\n    x = 1\n    return x\n", ("def f():\n    x = 1\n", "def f():\n    x = 2\n"))
    assert gates(step) == [[0, 1], [0, 1]]
    assert gates(step, "payload") == [[1, 1], [1, 1]]


def test_patch_inside_a_line_is_judged_by_the_whole_line() -> None:
    response = "<edit a.py><search>x = 1</search><replace>y = 0\nx = 1</replace></edit>"
    step = Step(response=response, files_before={"a.py": "if a:\n    x = 1\n"})
    # before: "    x = 1"; after: "    y = 0", "x = 1": the indentation of x is gone, so x is a change
    assert gates(step) == [[1], [1, 1]]


def test_what_is_undone_in_the_same_response_is_no_change() -> None:
    step = patch("a\nb\n", ("a\n", "c\n"), ("c\n", "a\n"))
    step.files_after = {"a.py": "a\nb\n"}
    assert gates(step) == [[0], [0], [0], [0]]


def test_line_that_looks_like_a_patch_header() -> None:
    """A changed SQL comment, `-- ...`, and `++ marker` are text like any other."""
    before = "-- daily totals\nselect day, sum(n)\nfrom hits\ngroup by day;\n-- end\nlimit 10;\n"
    step = patch(before, ("-- end\nlimit 10;\n", "++ marker\n--- x\nlimit 10;\n"), path="report.txt")
    old, new = roots_of(step)
    assert old.lines == ("-- end", "limit 10;") and old.changed.tolist() == [True, False]
    assert new.lines == ("++ marker", "--- x", "limit 10;") and new.changed.tolist() == [True, True, False]


def test_one_line_edit_of_a_crlf_file_is_one_removed_and_one_added_line() -> None:
    step = patch("a = 1\r\nb = 2\r\nc = 3\r\n", ("b = 2\n", "b = 20\n"))
    assert [(r.kind, r.lines, r.changed.tolist()) for r in roots_of(step)] == [
        ("del", ("b = 2",), [True]),
        ("add", ("b = 20",), [True]),
    ]
    assert gates(overwrite("a = 1\nb = 20\n", "a = 1\r\nb = 2\r\n")) == [[0, 1]]


def test_common_lines_is_a_longest_common_subsequence() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        a, b = ([rng.choice("abcd") for _ in range(rng.randint(0, 9))] for _ in range(2))
        old, new = common_lines(a, b)
        shared = [line for line, same in zip(a, old, strict=True) if same]
        assert shared == [line for line, same in zip(b, new, strict=True) if same]
        assert len(shared) == ref_lcs(a, b)


def test_long_files_end() -> None:
    old = [f"line {i}" for i in range(20_000)]
    new = [line if i % 7 else line + "!" for i, line in enumerate(old)]
    assert int((~common_lines(old, new)[1]).sum()) == -(-20_000 // 7)
    assert np.all(common_lines(["x"] * 20_000, ["x"] * 19_999)[1])
