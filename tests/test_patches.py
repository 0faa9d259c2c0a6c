"""Unified diffs: hunk counts rule, application is exact or refused, spans stand where they say."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didpo.patches import apply_patch, parse_patch, patch_spans
from didpo.textedit import EditRefused

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


def test_changed_lines_that_look_like_headers() -> None:
    (patch,) = parse_patch(REPORT_PATCH)
    assert (patch.old_path, patch.new_path, len(patch.hunks)) == ("report.sql", "report.sql", 3)
    assert patch.removed() == [(1, "-- daily totals"), (5, "-- end"), (9, "-- footer")]
    assert [text for _, text in patch.added()] == ["-- weekly totals", "++ marker", "-- last line"]
    done = apply_patch(REPORT_PATCH, {"report.sql": REPORT})
    assert done.error is None
    assert done.files["report.sql"] == (
        "-- weekly totals\nselect day, sum(n)\nfrom hits\n"
        "group by day;\n++ marker\nlimit 10;\noffset 0;\n\n-- last line\n"
    )
    assert [(s.kind, s.text, s.line) for s in done.spans][:2] == [
        ("del", "-- daily totals\n", 0),
        ("add", "-- weekly totals\n", 0),
    ]


AREA = "def area(w, h):\n    size = w + h\n    return size\n\n\n\n"
AREA_PATCH = (
    "--- a/area.py\n+++ b/area.py\n@@ -1,6 +1,6 @@\n def area(w, h):\n-    size = w + h\n+    size = w * h\n"
    "     return size\n \n \n \n"
)


def test_blank_context_at_the_end() -> None:
    done = apply_patch(AREA_PATCH, {"area.py": AREA})
    assert done.error is None
    assert done.files == {"area.py": "def area(w, h):\n    size = w * h\n    return size\n\n\n\n"}


@pytest.mark.parametrize(
    "damaged",
    [
        AREA_PATCH.strip(),
        AREA_PATCH[:-2],  # one line of context lost
        AREA_PATCH + " \n",  # one too many
        AREA_PATCH + "+x = 1\n",
        AREA_PATCH.replace("-    size = w + h", "-    size = w - h"),
        AREA_PATCH.replace("@@ -1,6 +1,6 @@", "@@ -2,6 +2,6 @@"),
        AREA_PATCH.replace("@@ -1,6 +1,6 @@", "@@ 1,6 @@"),
        AREA_PATCH.replace("area.py", "../area.py"),
        AREA_PATCH.replace("area.py", "other.py"),
        AREA_PATCH.replace("--- a/area.py\n+++ b/area.py\n", ""),
        "",
        "no patch at all\n",
    ],
)
def test_a_damaged_patch_is_refused_and_changes_nothing(damaged: str) -> None:
    done = apply_patch(damaged, {"area.py": AREA})
    assert done.files == {"area.py": AREA}
    assert done.error and "\n" not in done.error
    assert done.spans == ()


def test_blank_context_lines_that_lost_their_space() -> None:
    done = apply_patch(AREA_PATCH.replace("\n \n", "\n\n").replace("\n \n", "\n\n"), {"area.py": AREA})
    assert done.error is None
    assert done.files["area.py"].endswith("return size\n\n\n\n")


def test_one_bad_hunk_leaves_every_file_alone() -> None:
    files = {"report.sql": REPORT, "area.py": AREA.replace("+", "-")}
    done = apply_patch(REPORT_PATCH + AREA_PATCH, files)
    assert done.files == files
    assert done.error == ("area.py: line 2 is '    size = w - h\\n', the patch expects '    size = w + h\\n'")


def test_no_newline_marks_are_not_lines() -> None:
    mark = "\\ No newline at end of file\n"
    patch = f"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n{mark}+TWO\n{mark}"
    assert apply_patch(patch, {"x": "one\ntwo"}).files == {"x": "one\nTWO"}
    assert apply_patch(patch, {"x": "one\ntwo\n"}).error is not None
    added = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-two\n\\ No newline at end of file\n+two\n"
    assert apply_patch(added, {"x": "two"}).files == {"x": "two\n"}
    middle = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+ONE\n\\ No newline at end of file\n"
    assert apply_patch(middle, {"x": "one\ntwo\n"}).error is not None


def test_new_deleted_and_renamed_files() -> None:
    new = "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert apply_patch(new, {}).files == {"n.py": "a\nb\n"}
    assert apply_patch(new, {"n.py": ""}).error == "n.py: the patch makes the file anew, but it exists"
    gone = "--- a/n.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
    assert apply_patch(gone, {"n.py": "a\nb\n", "m.py": ""}).files == {"m.py": ""}
    assert apply_patch(gone, {"n.py": "a\nb\nc\n"}).error is not None
    moved = (
        "diff --git a/n.py b/m.py\nsimilarity index 100%\nrename from n.py\nrename to m.py\n"
        "diff --git a/e.py b/e.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    )
    assert apply_patch(moved, {"n.py": "a\n"}).files == {"m.py": "a\n", "e.py": ""}


def test_git_quotes_names_and_signs_mails() -> None:
    patch = '--- "a/caf\\303\\251.py"\n+++ "b/caf\\303\\251.py"\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39.5\n'
    assert apply_patch(patch, {"café.py": "a\n"}).files == {"café.py": "b\n"}


@pytest.mark.parametrize(
    "text",
    [
        "GIT binary patch\nliteral 3\n",
        "--- a/x\n+++ b/x\n",
        "--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+a\n",
        "--- a/x\n+++ b/x\n@@@ -1 -1 +1 @@@\n- a\n",
    ],
)
def test_what_is_no_text_patch_is_refused(text: str) -> None:
    assert apply_patch(text, {"x": "a\n"}).error is not None


def test_only_line_feeds_end_lines() -> None:
    old = "a\x0cb\r\nc\u2028d\x85e\n\rf\n"
    new = old.replace("d", "D")
    assert apply_patch(_diff(old, new), {"x": old}).files == {"x": new}


def _diff(old: str, new: str, context: int = 3) -> str:
    """A unified diff of two texts, split at line feeds only."""

    def lines(text: str) -> list[str]:
        parts = text.split("\n")
        return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])

    out = []
    for line in difflib.unified_diff(lines(old), lines(new), "a/x", "b/x", n=context):
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out)


_TEXT = st.lists(
    st.sampled_from(["a", "b", "-- c", "++ d", "", " ", "\\ e", "@@ -1 +1 @@", "f\r", "\u2028g"]), max_size=12
)


@given(_TEXT, _TEXT, st.booleans(), st.booleans(), st.integers(0, 3))
def test_every_diff_applies_exactly(a: list[str], b: list[str], end_a: bool, end_b: bool, context: int) -> None:
    old, new = "\n".join(a) + "\n" * end_a, "\n".join(b) + "\n" * end_b
    if old == new:
        return
    patch = _diff(old, new, context)
    done = apply_patch(patch, {"x": old})
    assert done.error is None
    assert done.files == {"x": new}
    response = "Here it is:\n" + patch
    spans = patch_spans(response, start=len("Here it is:\n"))
    assert [(s.kind, s.text) for s in spans] == [(s.kind, s.text) for s in done.spans]
    for span in spans:
        assert response[span.start : span.end] == span.text


@given(st.text(alphabet="ab -+@\\\n0123,/", max_size=200))
def test_any_text_is_applied_or_refused(text: str) -> None:
    files = {"x": "a\nb\n"}
    done = apply_patch("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n" + text, files)
    assert (done.files == files) if done.error else True


def test_a_text_without_patch_has_no_spans() -> None:
    assert patch_spans("nothing here") == ()
    with pytest.raises(EditRefused, match="no patch found"):
        parse_patch("nothing here")
