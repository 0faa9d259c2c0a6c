"""Faults that users of similar projects met, part 1: patches and edits (cases C01 to C06).

One test per expectation, named after the case. Inputs and right results are this project's own.
"""

from __future__ import annotations

import difflib
import itertools
import json
from pathlib import Path

import pytest

from didpo.actions import Applied, apply, edit_spans, files_after, parse
from didpo.credit import CREDIT
from didpo.credit.diffs import rows_of
from didpo.importers import import_file
from didpo.importers.common import ImportReport
from didpo.patches import FilePatch, apply_patch, parse_patch
from didpo.trajectories import read_groups, write_groups
from didpo.types import Step, Trajectory, TrajectoryGroup

# ---------------------------------------------------------------- C01 changed lines that look like file headers

REPORT = "-- daily totals\nselect day, sum(n)\nfrom hits\ngroup by day;\n-- end\nlimit 10;\noffset 0;\n\n-- footer\n"
REPORT_PATCH = """\
--- a/report.sql
+++ b/report.sql
@@ -1,2 +1,2 @@
--- daily totals
+-- weekly totals
 select day, sum(n)
@@ -4,3 +4,3 @@ from hits
 group by day;
--- end
+++ marker
 limit 10;
@@ -8,2 +8,2 @@ offset 0;
 
--- footer
+-- last line
"""
LOOK_ALIKES = [
    "-- a/report.sql", "++ b/report.sql", "-- /dev/null", "@@ -1,2 +1,2 @@", "diff --git a/x b/x",
    "index 12..34 100644",
    "\\ No newline at end of file", "--", "++", "", " ", "- x", "+ x", "rename from x", "GIT binary patch", "-- ",
]  # fmt: skip


def report_patch() -> FilePatch:
    (patch,) = parse_patch(REPORT_PATCH)
    return patch


def test_c01_1_one_file_with_three_hunks() -> None:
    """A changed line that prints like a file header starts no new file."""
    assert (report_patch().old_path, report_patch().new_path) == ("report.sql", "report.sql")
    assert len(report_patch().hunks) == 3


def test_c01_2_texts_of_the_changed_lines() -> None:
    """The texts of removed and added lines are those of the files."""
    assert [text for _, text in report_patch().removed()] == ["-- daily totals", "-- end", "-- footer"]
    assert [text for _, text in report_patch().added()] == ["-- weekly totals", "++ marker", "-- last line"]


def test_c01_3_old_line_numbers() -> None:
    """Removed lines carry their line numbers in the old file."""
    assert [number for number, _ in report_patch().removed()] == [1, 5, 9]


def test_c01_4_it_applies_exactly() -> None:
    """Applied to the old file it gives the new one, byte for byte."""
    done = apply_patch(REPORT_PATCH, {"report.sql": REPORT, "other": "x"})
    new = REPORT.replace("daily totals", "weekly totals").replace("-- end", "++ marker").replace("footer", "last line")
    assert done.error is None and done.files == {"report.sql": new, "other": "x"}


@pytest.mark.parametrize("line", LOOK_ALIKES)
@pytest.mark.parametrize("side", ["removed", "added", "both", "context"])
def test_c01_any_look_alike_on_any_side(line: str, side: str, tmp_path: Path) -> None:
    """No text of a line, removed, added or kept, is taken for the syntax of the patch."""
    old = {"removed": [line, "k"], "added": ["k"], "both": [line, "k"], "context": ["o", line]}[side]
    new = {"removed": ["k"], "added": [line, "k"], "both": [line + "x", "k"], "context": ["n", line]}[side]
    before, after = ("".join(f"{text}\n" for text in lines) for lines in (old, new))
    patch = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/f", "b/f"))
    second = patch.replace("a/f", "a/g").replace("b/f", "b/g") if side != "context" else ""
    done = apply_patch(patch + second, {"f": before, "g": before})
    assert done.error is None
    assert done.files == {"f": after, "g": after if second else before}
    (tmp_path / "p.diff").write_text(patch)
    report = ImportReport()
    (group,) = import_file(tmp_path / "p.diff", report=report)
    spans = [(s.kind, s.text) for s in group.trajectories[0].steps[0].edits or ()]
    assert not report.unrecognised
    assert spans == [(s.kind, s.text) for s in apply_patch(patch, {"f": before}).spans]


# ---------------------------------------------------------------- C04 blank context at the end, damaged patches

AREA = "def area(w, h):\n    size = w + h\n    return size\n\n\n\n"
AREA_AFTER = AREA.replace("w + h", "w * h")
AREA_PATCH = (
    "--- a/area.py\n+++ b/area.py\n@@ -1,6 +1,6 @@\n def area(w, h):\n-    size = w + h\n+    size = w * h\n"
    "     return size\n \n \n \n"
)


def stored(patch: str, tmp_path: Path) -> Step:
    """The patch as a model gave it, through a predictions file and stored rollouts, to a step."""
    row = {"instance_id": "i", "model_patch": patch, "model_name_or_path": "m", "resolved": True}
    (tmp_path / "predictions.jsonl").write_text(json.dumps(row) + "\n")
    write_groups(tmp_path / "groups.jsonl", import_file(tmp_path / "predictions.jsonl"))
    (group,) = read_groups(tmp_path / "groups.jsonl")
    return group.trajectories[0].steps[0]


def test_c04_1_blank_context_survives_the_whole_path(tmp_path: Path) -> None:
    """From model text over stored files to the edited file no blank context line is lost."""
    assert apply_patch(AREA_PATCH, {"area.py": AREA}).files == {"area.py": AREA_AFTER}
    step = stored(AREA_PATCH, tmp_path)
    assert apply(parse(step.response), {"area.py": AREA}).files == {"area.py": AREA_AFTER}
    response = f"<run>\ncat > p.diff <<'END'\n{AREA_PATCH}END\n</run>"
    assert AREA_PATCH in (parse(response).command or "")


@pytest.mark.parametrize("cut", [str.strip, str.rstrip, lambda p: p[:-2], lambda p: p[:-4], lambda p: p + " \n \n"])
def test_c04_2_a_damaged_patch_is_refused_or_right(cut, tmp_path: Path) -> None:
    """A patch that does not match its header changes nothing and says why; never half of it."""
    done = apply_patch(cut(AREA_PATCH), {"area.py": AREA, "b": "1\n"})
    assert done.error and "\n" not in done.error and done.files == {"area.py": AREA, "b": "1\n"} and done.spans == ()
    applied = apply(parse(stored(cut(AREA_PATCH), tmp_path).response), {"area.py": AREA})
    assert applied.files["area.py"] in (AREA, AREA_AFTER)


def test_c04_2_damage_in_the_last_file_leaves_the_first_alone() -> None:
    """Several files: all or none."""
    files = {"area.py": AREA, "two.py": AREA}
    done = apply_patch(AREA_PATCH + AREA_PATCH.replace("area.py", "two.py").strip(), files)
    assert done.error and done.files == files


# ---------------------------------------------------------------- C05 search text must identify one place


def replace(text: str, *pairs: tuple[str, str]) -> Applied:
    body = "".join(f"<search>\n{old}</search>\n<replace>\n{new}</replace>\n" for old, new in pairs)
    return apply(parse(f"<edit f>\n{body}</edit>"), {"f": text})


def refused(done: Applied, text: str, places: int) -> bool:
    return done.files == {"f": text} and done.spans == () and f"{places} places" in (done.error or "")


def test_c05_1_overlapping_matches_are_two_places() -> None:
    """Matches that overlap count one by one."""
    text = "tick()\ntick()\ntick()\nstop()\n"
    assert refused(replace(text, ("tick()\ntick()\n", "tock()\n")), text, 2)
    assert refused(replace("abababa\n", ("aba", "x")), "abababa\n", 3)
    assert refused(replace("a\r\na\r\na\r\n", ("a\na\n", "b\n")), "a\r\na\r\na\r\n", 2)
    assert refused(replace("\n\n\n\n", ("\n\n", "x\n")), "\n\n\n\n", 3)


def test_c05_2_two_matches_are_refused() -> None:
    """The first of several matches is never taken silently."""
    text = "debug = 1\nx = 0\ndebug = 1\n"
    assert refused(replace(text, ("debug = 1", "debug = 2")), text, 2)
    assert refused(replace("debug = 1\ndebug = 10\n", ("debug = 1", "y")), "debug = 1\ndebug = 10\n", 2)
    after = apply(parse('<edit f><insert after="debug = 1">\ny = 1\n</insert></edit>'), {"f": text})
    assert refused(after, text, 2)


def test_c05_3_a_unique_exact_match_is_taken() -> None:
    """A place that only resembles the search text does not stand in the way."""
    text = 'label = “ok”\nn = 1\nlabel = "ok"\n'
    done = replace(text, ('label = "ok"', 'label = "done"'))
    assert done.error is None and done.files == {"f": 'label = “ok”\nn = 1\nlabel = "done"\n'}
    assert replace("x =  1\nx = 1\n", ("x = 1", "x = 2")).files == {"f": "x =  1\nx = 2\n"}
    assert replace("X = 1\nx = 1\n", ("x = 1", "x = 2")).files == {"f": "X = 1\nx = 2\n"}
    assert replace("e\u0301 = 1\né = 1\n", ("é = 1", "é = 2")).files == {"f": "e\u0301 = 1\né = 2\n"}


@pytest.mark.parametrize("name", ["didpo", "didpo_published"])
def test_c05_4_a_refused_edit_earns_nothing(name: str) -> None:
    """A refused edit is no sub-diff and gets no local credit, even where the edits before it were fine."""
    text = "debug = 1\nx = 0\ndebug = 1\n"
    ok = "<edit f>\n<search>\nx = 0\n</search>\n<replace>\nx = 9\n</replace>\n</edit>"
    bad = "<edit f>\n<search>\ndebug = 1\n</search>\n<replace>\ndebug = 2\n</replace>\n</edit>"
    responses = [bad, bad, ok + "\n" + bad, ok, ok]
    group = TrajectoryGroup(
        task_id="t",
        trajectories=[
            Trajectory(steps=[Step(response=r, files_before={"f": text}, reward=v, test_outcomes={"a": v > 0})])
            for r, v in zip(responses, (1.0, 0.0, 0.5, 1.0, 0.0), strict=True)
        ],
    )
    steps = [t.steps[0] for t in group.trajectories]
    assert [bool(edit_spans(s)) for s in steps] == [False, False, False, True, True]
    assert [files_after(s) == {"f": text} for s in steps] == [True, True, True, False, False]
    assert [len(row.roots) for row in rows_of(group)] == [0, 0, 0, 2, 2]
    credit = CREDIT[name](group)
    assert not any(credit.parts["diff"][g][0].any() for g in range(3))
    assert all(m.trajectory > 2 for anchor in credit.anchors for m in anchor.members)


# ---------------------------------------------------------------- C06 CRLF and mixed line ends

CRLF = "a = 1\r\nb = 2\r\nc = 3\r\n"


def test_c06_1_one_line_of_a_crlf_file(tmp_path: Path) -> None:
    """One line changes, every line end stays, and the diff is one line removed and one added."""
    response = "<edit f><search>b = 2</search><replace>b = 20</replace></edit>"
    done = apply(parse(response), {"f": CRLF})
    assert done.error is None and done.files == {"f": "a = 1\r\nb = 20\r\nc = 3\r\n"}
    group = TrajectoryGroup(
        task_id="t",
        trajectories=[Trajectory(steps=[Step(response=response, files_before={"f": CRLF}, files_after=done.files)])],
    )
    write_groups(tmp_path / "g.jsonl", [group])
    (again,) = read_groups(tmp_path / "g.jsonl")
    assert again.trajectories[0].steps[0].files_after == done.files
    (row,) = rows_of(again)
    assert [(root.kind, root.lines, root.changed.tolist()) for root in row.roots] == [
        ("del", ("b = 2",), [True]), ("add", ("b = 20",), [True])
    ]  # fmt: skip


def test_c06_2_a_search_over_lines_of_a_crlf_file() -> None:
    """A search written with plain line ends matches, and the new lines end as those they replace."""
    assert replace(CRLF, ("a = 1\nb = 2", "a = 5\nb = 6")).files == {"f": "a = 5\r\nb = 6\r\nc = 3\r\n"}
    assert replace(CRLF, ("b = 2\nc = 3\n", "b = 6\nd = 1\nc = 3\n")).files == {
        "f": "a = 1\r\nb = 6\r\nd = 1\r\nc = 3\r\n"
    }
    assert replace("x\ny\n", ("x\r\ny\r\n", "z\r\n")).files == {"f": "z\n"}


def test_c06_3_mixed_line_ends_stay_mixed() -> None:
    """In a file with both, every line keeps its own."""
    assert replace("one\r\ntwo\nthree\r\n", ("two", "TWO")).files == {"f": "one\r\nTWO\nthree\r\n"}
    assert replace("one\r\ntwo\nthree\r\n", ("one", "ONE")).files == {"f": "ONE\r\ntwo\nthree\r\n"}
    assert replace("a\rb\nc\r\r\nd", ("d", "D")).files == {"f": "a\rb\nc\r\r\nD"}
    inserted = apply(parse('<edit f><insert line="2">\nnew\n</insert></edit>'), {"f": "one\r\ntwo\nthree\r\n"})
    assert inserted.files == {"f": "one\r\ntwo\nnew\nthree\r\n"}


@pytest.mark.parametrize("ends", list(itertools.product(["\n", "\r\n"], repeat=3)))
def test_c06_any_mix_of_line_ends(ends: tuple[str, str, str]) -> None:
    """Whatever the mix: an edit of one line or of all of them, as a search or as a patch, touches no line end."""
    text = "".join(line + end for line, end in zip(("a", "b", "c"), ends, strict=True))
    assert replace(text, ("b", "B")).files == {"f": text.replace("b", "B")}
    assert replace(text, ("a\nb\nc\n", "A\nB\nC\n")).files == {"f": text.upper()}
    old = f"-b{ends[1]}+B{ends[1]}"
    patch = f"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a{ends[0]}{old} c{ends[2]}"
    assert apply_patch(patch, {"f": text}).files == {"f": text.replace("b", "B")}
