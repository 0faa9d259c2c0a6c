"""Plain unified diffs (.diff, .patch): the files given together are attempts at one task, each one step.

A diff cannot be a response as it stands: its lines carry a first character that is no code. The step's response writes
every run of changed lines as a search and its replacement, or as an insertion, and the edits are the spans in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from didpo.errors import UserError
from didpo.importers.common import Found, ImportReport, span
from didpo.patches import FilePatch, Hunk, parse_patch
from didpo.textedit import EditRefused
from didpo.types import Step, Trajectory, TrajectoryGroup

WHOLE, STRIPPED = "unified diff", "unified diff without its last context lines"


@dataclass(kw_only=True)
class Change:
    """A run of changed lines: `line` is the 0-based line of the old file at which it stands."""

    path: str
    line: int
    way: str
    removed: list[str]
    added: list[str]


def load(paths: list[Path], report: ImportReport) -> list[TrajectoryGroup]:
    """One group; its task is the name of the folder of the first file."""
    trajectories = []
    for path in paths:
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 text (byte {error.start})") from error
        step = step_of_diff(text, report, str(path), None)
        trajectories.append(Trajectory(steps=[step], trajectory_id=path.name))
    task_id = paths[0].resolve().parent.name or "diffs"
    return [TrajectoryGroup(task_id=task_id, group_id=task_id, trajectories=trajectories)]


def step_of_diff(diff: str, report: ImportReport, where: str, reward: float | None) -> Step:
    """The step that a diff stands for. Raises UserError, with `where`, for a text that holds no diff at all."""
    if diff.count("\n") == diff.count("\r\n"):
        diff = diff.replace("\r\n", "\n")  # headers included: the file's transport, not the code, ends lines so
    if diff.strip() and not re.search(r"^(---|diff --git|@@) ", diff, re.MULTILINE):
        raise UserError(f"{where}: no unified diff (no '---', 'diff --git' or '@@' line)")
    found = Found()
    changes = list(_changes(diff, found))
    response, path = "", ""
    places: list[tuple[Change, list[tuple[int, int, str]]]] = []
    for change in changes:
        if change.path != path:
            response += ("</edit>\n" if path else "") + f"<edit {change.path}>\n"
            path = change.path
        places.append((change, []))
        for text, kind, before, after in _payloads(change):
            start = len(response) + len(before) + 1
            response += f"{before}\n{text}{after}\n"
            places[-1][1].append((start, start + len(text), kind))
    response += "</edit>" if path else ""
    for change, pieces in places:
        found.add(change.way, *(span(response, a, b, change.path, kind, change.line) for a, b, kind in pieces))
    edits = found.report_to(report, refused=False)
    return Step(response=response, reward=reward, edits=edits, action="edit" if changes else None)


def _payloads(change: Change) -> Iterator[tuple[str, str, str, str]]:
    """(text, kind, tag before, tag after) of the texts of a change."""
    if change.removed:
        yield "".join(change.removed), "del", "<search>", "</search>"
        yield "".join(change.added), "add", "<replace>", "</replace>"
    else:
        yield "".join(change.added), "add", f'<insert line="{change.line}">', "</insert>"


def _changes(diff: str, found: Found) -> Iterator[Change]:
    """The runs of changed lines; a file whose part is damaged or binary is counted and costs the others nothing."""
    for part in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE):
        if not re.search(r"^(@@ |--- |GIT binary patch|Binary files )", part, re.MULTILINE):
            continue  # words before the diff, or a change of mode alone
        try:
            patches, way = _parse(part)
        except EditRefused as refused:
            binary = "binary" in str(refused)
            found.unrecognised["a binary file in a diff" if binary else f"a damaged diff: {refused}"] += 1
            continue
        for patch in patches:
            for hunk in patch.hunks:
                yield from _runs(hunk, patch.new_path or patch.old_path or "", way)


def _parse(part: str) -> tuple[list[FilePatch], str]:
    """The patches in a part of a diff. Where a text was stripped at its end, the blank context lines are put back."""
    try:
        return parse_patch(part), WHOLE
    except EditRefused:
        body = part.rstrip("\n")
        for lost in (1, 2, 3):  # a hunk ends with at most three lines of context
            try:
                return parse_patch(body + "\n" + " \n" * lost), STRIPPED
            except EditRefused:
                continue
        raise


def _runs(hunk: Hunk, path: str, way: str) -> Iterator[Change]:
    """The runs of removed and added lines of a hunk."""
    at = hunk.old_start - 1 if hunk.old else hunk.old_start
    for changed, run in groupby(hunk.lines, key=lambda line: line.kind != " "):
        lines = list(run)
        if changed:
            removed = [line.text for line in lines if line.kind == "-"]
            added = [line.text for line in lines if line.kind == "+"]
            yield Change(path=path, line=at, way=way, removed=removed, added=added)
        at += sum(line.kind != "+" for line in lines)
