"""Importers: every recognised edit is an exact span of the response, and what is not recognised is counted."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from didpo.errors import UserError
from didpo.importers import ImportReport, import_file
from didpo.importers.shell import shell_edits
from didpo.trajectories import read_groups, write_groups
from didpo.types import EditSpan, Step, StopReason, TrajectoryGroup


def spans(groups: Iterable[TrajectoryGroup]) -> list[tuple[Step, EditSpan]]:
    return [(s, e) for g in groups for t in g.trajectories for s in t.steps for e in s.edits or ()]


def load(path: Path | list[Path], **options: str) -> tuple[list[TrajectoryGroup], ImportReport]:
    """Import, check what must hold for every import, and give groups and report."""
    report = ImportReport()
    groups = import_file(path, report=report, **options)
    for step, edit in spans(groups):
        assert step.response[edit.start : edit.end] == edit.text
    assert all(s.edits is not None for g in groups for t in g.trajectories for s in t.steps)
    assert report.groups == len(groups) and report.edits >= 0 and report.lines()
    return groups, report


# ---------------------------------------------------------------- real recordings


def test_reflexion_attempts(shared_data: Path, tmp_path: Path) -> None:
    groups, report = load(shared_data / "reflexion" / "leetcode_attempts.jsonl.gz")
    assert (len(groups), report.trajectories, report.edits) == (32, 75, 75)
    assert not report.unrecognised and not report.refused
    assert sum(t.outcome == 1 for g in groups for t in g.trajectories) == 6
    assert max(len(g.trajectories) for g in groups) == 3
    # 30 names, but two of them stand for two problems each
    assert {g.task_id for g in groups if "(" in g.task_id} == {
        "countSubarrays(nums, k)", "countSubarrays(nums, minK, maxK)", "minCost(nums, k)", "minCost(nums, cost)"
    }  # fmt: skip
    assert report.notes == [f"{n}: 2 problems share this name; each is a group" for n in ("countSubarrays", "minCost")]
    assert all(t.stop_reason == (StopReason.SOLVED if t.outcome else StopReason.FINISHED)
               for g in groups for t in g.trajectories)  # fmt: skip
    write_groups(tmp_path / "g.jsonl.gz", groups)
    assert list(read_groups(tmp_path / "g.jsonl.gz")) == groups
    assert import_file(tmp_path / "g.jsonl.gz") == groups  # its own format is recognised


def test_seven_swe_agent_runs_of_one_issue_form_a_group(shared_data: Path) -> None:
    groups, report = load(shared_data / "trajectories" / "swe-agent")
    sizes = {g.task_id: len(g.trajectories) for g in groups}
    assert sizes["marshmallow-code__marshmallow-1867"] == 7
    assert sizes["pydicom__pydicom-1458"] == 1 and sum(sizes.values()) == 12
    group = next(g for g in groups if "marshmallow" in g.task_id)
    for trajectory in group.trajectories:
        added = [(e.path, e.text) for s in trajectory.steps for e in s.edits or () if e.kind == "add"]
        assert [path for path, _ in added] == ["reproduce.py", "src/marshmallow/fields.py"]
        assert added[0][1].startswith("from marshmallow.fields import TimeDelta\n")
        assert "return int(round(value.total_seconds() / base_unit.total_seconds()))" in added[1][1]
        assert len([s for s in trajectory.steps if s.action == "edit"]) == 3  # one of them was refused
    lines = {e.line for t in group.trajectories for s in t.steps for e in s.edits or () if e.path.startswith("src")}
    assert lines == {1474, 0}  # line edits and cursors say where; search and replace does not
    assert report.recognised == {"line range": 12, "cursor range": 4, "search and replace": 3, "insert": 1}
    assert report.refused == 10 and not report.unrecognised


def test_mini_swe_agent(shared_data: Path) -> None:
    groups, report = load(shared_data / "trajectories" / "mini-swe-agent")
    edits = [e for _, e in spans(groups)]
    assert [(e.kind, e.path) for e in edits] == [
        ("del", "tests/missing_colon.py"), ("add", "tests/missing_colon.py"), ("overwrite", "tests/missing_colon.py")
    ]  # fmt: skip
    assert edits[1].text == "def division(a: float, b: float) -> float:"
    assert edits[2].text.startswith("#!/usr/bin/env python3\n") and edits[2].text.endswith("15))\n")
    assert report.recognised == {"sed": 1, "here-document": 1}
    assert all(g.trajectories[0].stop_reason == StopReason.FINISHED for g in groups)


def test_openhands(shared_data: Path) -> None:
    groups, report = load(shared_data / "trajectories" / "openhands" / "multi_swe_bench_3.jsonl.gz")
    assert [g.task_id for g in groups] == [f"ponylang__ponyc-{n}" for n in (4595, 4593, 4588)]
    first = [(e.kind, e.path) for _, e in spans(groups[:1])]
    assert first == [("del", "src/libponyc/ast/parser.c"), ("add", "src/libponyc/ast/parser.c")]
    assert report.refused == 23 and report.edits == 7
    assert report.unrecognised == {"echo or printf into a file": 2}


@pytest.mark.skipif(shutil.which("git") is None, reason="git counts the changed lines here")
@pytest.mark.parametrize("name", ["gold_patches.jsonl.gz", "openhands_predictions.jsonl"])
def test_changed_lines_of_predictions_are_those_that_git_counts(shared_data: Path, name: str) -> None:
    path = shared_data / "swebench" / name
    groups, _ = load(path)
    with gzip.open(path, "rt", newline="") if name.endswith("gz") else open(path, newline="") as lines:
        rows = [json.loads(line) for line in lines]
    for group, row in zip(groups, rows, strict=True):
        patch = row["model_patch"].replace("\r\n", "\n")
        counted = subprocess.run(["git", "apply", "--numstat"], input=patch.encode(), capture_output=True, check=False)
        if counted.returncode:
            continue  # a patch that git calls corrupt has its own test
        wanted = [int(n) for line in counted.stdout.decode().splitlines() for n in line.split("\t")[:2] if n != "-"]
        edits = [e for _, e in spans([group])]
        found = [
            sum(e.text.count("\n") + (not e.text.endswith("\n")) for e in edits if e.kind == k) for k in ("add", "del")
        ]
        assert found == [sum(wanted[0::2]), sum(wanted[1::2])], group.task_id


# ---------------------------------------------------------------- unified diffs

C01 = """--- a/report.sql
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


def diff_edits(tmp_path: Path, text: str) -> tuple[list[EditSpan], ImportReport]:
    (tmp_path / "a.diff").write_text(text)
    groups, report = load(tmp_path / "a.diff")
    return [e for _, e in spans(groups)], report


def test_changed_lines_that_look_like_headers(tmp_path: Path) -> None:
    edits, report = diff_edits(tmp_path, C01)
    assert {e.path for e in edits} == {"report.sql"}
    assert [(e.text, e.line) for e in edits if e.kind == "del"] == [
        ("-- daily totals\n", 0), ("-- end\n", 4), ("-- footer\n", 8)
    ]  # fmt: skip
    assert [e.text for e in edits if e.kind == "add"] == ["-- weekly totals\n", "++ marker\n", "-- last line\n"]
    assert report.edits == 3 and not report.unrecognised


def test_blank_context_stripped_off_the_end_loses_nothing(tmp_path: Path) -> None:
    patch = (
        "--- a/s.py\n+++ b/s.py\n@@ -1,6 +1,6 @@\n def area(w, h):\n-    size = w + h\n+    size = w * h\n"
        "     return size\n \n \n \n"
    )
    for text in (patch, patch.strip()):
        edits, report = diff_edits(tmp_path, text)
        assert [(e.kind, e.text, e.line) for e in edits] == [
            ("del", "    size = w + h\n", 1), ("add", "    size = w * h\n", 1)
        ]  # fmt: skip
        assert not report.unrecognised
    assert report.recognised == {"unified diff without its last context lines": 1}


def test_a_damaged_part_is_counted_and_costs_the_others_nothing(tmp_path: Path) -> None:
    good = "diff --git a/t b/t\n--- a/t\n+++ b/t\n@@ -1 +1 @@\n-p\n+q\n"
    cut = "diff --git a/s b/s\n--- a/s\n+++ b/s\n@@ -1,2 +1,4 @@\n x\n+y\n"
    binary = "diff --git a/u b/u\nindex 1..2\nBinary files a/u and b/u differ\n"
    edits, report = diff_edits(tmp_path, cut + binary + good)
    assert [(e.path, e.text) for e in edits] == [("t", "p\n"), ("t", "q\n")]
    assert sum(n for reason, n in report.unrecognised.items() if "s: hunk" in reason) == 1
    assert report.unrecognised["a binary file in a diff"] == 1


def test_new_deleted_and_unterminated_files(tmp_path: Path) -> None:
    edits, _ = diff_edits(
        tmp_path,
        "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
        "\\ No newline at end of file\ndiff --git a/o.py b/o.py\n--- a/o.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n",
    )
    assert [(e.path, e.kind, e.text, e.line) for e in edits] == [
        ("n.py", "add", "a\nb", 0),
        ("o.py", "del", "gone\n", 0),
    ]


def test_predictions_of_several_models_form_groups(tmp_path: Path) -> None:
    answers = (("m1", C01, True), ("m2", "", False), ("m2", None, False))
    rows = [
        {"instance_id": i, "model_name_or_path": m, "model_patch": p, "resolved": r}
        for m, p, r in answers
        for i in ("x-1", "y-2")
    ]
    for name, part in (("a.jsonl", rows[:3]), ("b.jsonl", rows[3:])):
        (tmp_path / name).write_text("".join(json.dumps(r) + "\n" for r in part))
    groups, _ = load([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert [(g.task_id, [t.outcome for t in g.trajectories]) for g in groups] == [
        ("x-1", [1, 0, 0]),
        ("y-2", [1, 0, 0]),
    ]
    assert len({t.trajectory_id for t in groups[0].trajectories}) == 3
    (tmp_path / "preds.json").write_text(json.dumps({r["instance_id"]: r for r in rows[:2]}))
    assert [(g.task_id, len(g.trajectories[0].steps[0].edits or ())) for g in load(tmp_path / "preds.json")[0]] == [
        ("x-1", 6), ("y-2", 6)
    ]  # fmt: skip


# ---------------------------------------------------------------- shell commands


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("cat > f.py <<'EOF'\nx = 1\nEOF", [("overwrite", "f.py", "x = 1\n", 0)]),
        ("cat <<'EOF' > f.py\nx = 1\nEOF\npython f.py", [("overwrite", "f.py", "x = 1\n", 0)]),
        ("cd d && cat >> 'a b.py' << \"E\"\n$HOME\nE", [("add", "a b.py", "$HOME\n", 0)]),
        ("tee -a f <<EOF\nplain\nEOF", [("add", "f", "plain\n", 0)]),
        ("cat > a <<'X'\n1\nX\ncat > b <<'Y'\nsed -i 's/a/b/' c\nY", [
            ("overwrite", "a", "1\n", 0), ("overwrite", "b", "sed -i 's/a/b/' c\n", 0)]),
        ("cat > /repo/src/f.py <<'EOF'\nEOF", []),
        ("python - <<'EOF'\nprint(1)\nEOF", []),
        ("sed -i 's/old/new/' f.py", [("del", "f.py", "old", 0), ("add", "f.py", "new", 0)]),
        ("cd /repo && sed -i '12s|a b|c|g' /repo/f.py", [("del", "f.py", "a b", 11), ("add", "f.py", "c", 11)]),
        ("sed -i 's/o[ld]*/new/' f.py", [("add", "f.py", "new", 0)]),
        ("sed -i '3a\\    y = 2' f.py", [("add", "f.py", "    y = 2", 3)]),
        ("sed -i '3i y = 2' f.py", [("add", "f.py", "y = 2", 2)]),
        ("sed -n '1,5p' f.py", []),
        ("grep -rn 'sed -i' . && ls > out.txt", []),
    ],
)  # fmt: skip
def test_shell_edits(command: str, wanted: list[tuple[str, str, str, int]]) -> None:
    response = f"thought: cat > no <<'EOF'\n\n{command}\ntail"
    start = response.index(command)
    found = shell_edits(response, start, start + len(command), "/repo")
    assert [(e.kind, e.path, e.text, e.line) for e in found.spans] == wanted
    assert all(response[e.start : e.end] == e.text and e.start >= start for e in found.spans)
    assert not found.unrecognised


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("cat > f <<EOF\n$HOME\nEOF", "a here-document in which the shell replaces parts"),
        ("cat > f <<-'EOF'\n\tx\nEOF", "a here-document whose leading tabs are removed"),
        ("sed -i -e 's/a/b/' -e 's/c/d/' f", "sed with several or unquoted scripts"),
        ("sed -i 's/a/b/;s/c/d/' f", "sed with escapes, references or several commands"),
        ("sed -i 's/\\(a\\)/\\1b/' f", "sed with escapes, references or several commands"),
        ("sed -i 's/a/b/' *.py", "sed on several files"),
        ("git apply fix.patch", "a patch applied by a command"),
        ("python -c \"open('f','w').write('x')\"", "a script that writes a file"),
        ("python - <<'EOF'\nopen('f','w').write('x')\nEOF", "a script that writes a file"),
        ("echo 'x = 1' > f.py", "echo or printf into a file"),
    ],
)
def test_what_is_not_followed_is_counted(command: str, reason: str) -> None:
    found = shell_edits(command, 0, len(command))
    assert not found.spans and found.unrecognised == {reason: 1}


# ---------------------------------------------------------------- SWE-agent dialects


def swe_run(
    tmp_path: Path, *turns: tuple[str, str], response: str | None = None
) -> tuple[list[EditSpan], ImportReport]:
    """One recording of (action, observation) turns; the answers hold the action unless `response` is given."""
    rows = [{"action": a, "observation": o, "response": f"ok\n```\n{a}\n```" if response is None else response,
             "state": {"working_dir": "/repo"}} for a, o in turns]  # fmt: skip
    path = tmp_path / "own__proj-1.traj"
    path.write_text(json.dumps({"trajectory": rows, "history": [], "info": {"exit_status": "submitted"}}))
    groups, report = load(path)
    assert groups[0].task_id == "own__proj-1"
    return [e for _, e in spans(groups)], report


OPENED = ("open a.py", "[File: /repo/a.py (3 lines total)]\n1:a\n2:b\n3:c")


def test_a_line_edit_goes_to_the_open_file(tmp_path: Path) -> None:
    edits, _ = swe_run(tmp_path, OPENED, ("edit 2:2\nB\nend_of_edit", "[File: /repo/a.py (3 lines total)]\n"))
    assert [(e.path, e.kind, e.text, e.line) for e in edits] == [("a.py", "add", "B\n", 1)]
    edits, report = swe_run(tmp_path, ("edit 2:2\nB\nend_of_edit", "ok"))
    assert not edits and report.unrecognised == {"a line edit where no open file is shown": 1}


@pytest.mark.parametrize("response", [None, "just a thought"])
def test_editor_calls_in_text_and_as_function_calls(tmp_path: Path, response: str | None) -> None:
    call = "str_replace_editor str_replace /repo/a.py --old_str 'x = 1' --new_str 'x = 2'"
    edits, report = swe_run(
        tmp_path, (call, "The file /repo/a.py has been edited."), ("str_replace_editor view /repo/a.py", "..."),
        ("str_replace_editor create /repo/b.py --file_text 'new'", "File created"),
        ("str_replace_editor insert /repo/a.py --insert_line 3 --new_str 'y'", "edited"), response=response,
    )  # fmt: skip
    assert [(e.path, e.kind, e.text, e.line) for e in edits] == [
        ("a.py", "del", "x = 1", 0), ("a.py", "add", "x = 2", 0),
        ("b.py", "overwrite", "new", 0), ("a.py", "add", "y", 3)
    ]  # fmt: skip
    assert report.recognised == {"str_replace_editor": 3}


def test_quotes_inside_a_call_are_exact_or_counted(tmp_path: Path) -> None:
    call = """edit 'it'"'"'s' 'its'"""
    edits, report = swe_run(tmp_path, OPENED, (call, "Text replaced."), response="a thought")
    assert [e.text for e in edits] == ["it's", "its"]  # written out from the call: verbatim
    edits, report = swe_run(tmp_path, OPENED, (call, "Text replaced."))
    assert not edits and report.unrecognised == {"quoted text with escapes": 1}


def test_a_refused_edit_earns_no_span(tmp_path: Path) -> None:
    edits, report = swe_run(
        tmp_path, OPENED, ("edit 2:2\nB\nend_of_edit", "Your proposed edit has introduced new syntax error(s)."),
        ("edit 'q' 'r'", "Text 'q' not found in displayed lines."),
    )  # fmt: skip
    assert not edits and report.refused == 2 and report.edits == 0


# ---------------------------------------------------------------- outcomes


def test_outcomes_come_from_a_file_beside(tmp_path: Path) -> None:
    run = {"trajectory": [{"action": "ls", "observation": "", "response": "ls"}], "info": {}}
    for name in ("one__x-1", "two__x-1"):
        (tmp_path / f"{name}.traj").write_text(json.dumps(run))
    _, report = load(tmp_path)
    assert any("2 rollouts carry no outcome" in line for line in report.lines())
    (tmp_path / "outcomes.json").write_text('{"one__x-1": true, "two__x-1": 0.25}')
    groups, report = load(tmp_path)
    assert {t.trajectory_id: t.outcome for g in groups for t in g.trajectories} == {"one__x-1": 1.0, "two__x-1": 0.25}
    assert not report.notes
    for content, message in (
        ('{"one__x-2": true}', "did you mean 'one__x-1'"), ('{"one__x-1": 7}', "from 0 to 1"), ("[]", "one JSON object")
    ):  # fmt: skip
        (tmp_path / "outcomes.json").write_text(content)
        with pytest.raises(UserError, match=message):
            import_file(tmp_path)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "{", "line 1: not valid JSON"),
        ("a.jsonl", '{"x": 1}\n', "no known format of trajectories"),
        ("a.traj", "{", "not valid JSON"),
        ("a.traj", "[]", "no known format"),
        ("a.diff", "hello\n", "no unified diff"),
        ("a.diff", b"\xff", "not UTF-8"),
        ("a.jsonl", '{"function": "f", "code": 1, "reward": true}\n', "line 1: field 'code' must be a text"),
        ("a.jsonl", '{"function": "f", "code": "", "reward": "yes"}\n', "line 1: field 'reward'"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as caught:
        import_file(tmp_path / name)
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_unknown_format_missing_file_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'openhands'"):
        import_file(tmp_path, format="openhand")
    with pytest.raises(UserError, match="no such file"):
        import_file(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="no trajectory files"):
        import_file(tmp_path)
