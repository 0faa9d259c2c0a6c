"""Plain unified diffs (.diff, .patch): the files given together are attempts at one task, each one step.

A diff cannot be a response as it stands: its lines carry a first character that is no code. The step's response writes
every run of changed lines as a search and its replacement, or as an insertion, and the edits are the spans in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from didpo.errors import UserError
from didpo.importers.common import Found, ImportReport, span
from didpo.types import Step, Trajectory, TrajectoryGroup

HUNK = re.compile(r"@@ -(?P<old>\d+)(?:,(?P<n_old>\d+))? \+(?P<new>\d+)(?:,(?P<n_new>\d+))? @@")
DAMAGED = "a hunk that does not fit its header"


@dataclass(kw_only=True)
class Change:
    """A run of changed lines: `line` is the 0-based line of the old file at which it stands."""

    path: str
    line: int
    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    way: str = ""


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
    """The runs of changed lines. Inside a hunk the header's counts say what a line is, not how it looks."""
    lines = diff.split("\n")
    old_path = new_path = ""
    i = 0
    while i < len(lines):
        line = lines[i]
        i += 1
        if line.startswith("--- ") and i < len(lines) and lines[i].startswith("+++ "):
            old_path, new_path = _path(line[4:]), _path(lines[i][4:])
            i += 1
        elif line.startswith(("Binary files ", "GIT binary patch")):
            found.unrecognised["a binary file in a diff"] += 1
        elif match := HUNK.match(line):
            path = old_path if new_path == "/dev/null" else new_path
            hunk, i = _hunk(lines, i, match, path, found)
            yield from hunk


def _path(text: str) -> str:
    text = text.split("\t")[0].strip().strip('"')
    return text if text == "/dev/null" else re.sub(r"^[ab]/", "", text)


def _hunk(lines: list[str], i: int, match: re.Match[str], path: str, found: Found) -> tuple[list[Change], int]:
    """The changes of the hunk whose body starts at line i, and the line after it; none where the body does not fit."""
    left = [int(match["n_old"] or 1), int(match["n_new"] or 1)]
    at = int(match["old"]) - (left[0] > 0)  # "-0,0" stands before the first line, "-5,0" after line 5
    changes: list[Change] = []
    inside = False
    while i < len(lines) and (left[0] > 0 or left[1] > 0):
        sign, text = lines[i][:1], lines[i][1:] + "\n"
        if sign not in ("+", "-", " ", "\\", ""):
            break
        if sign == "" and i == len(lines) - 1:
            break  # what follows the last line end is no line
        i += 1
        if sign in ("+", "-"):
            if not inside:
                changes.append(Change(path=path, line=at))
            (changes[-1].added if sign == "+" else changes[-1].removed).append(text)
            at += sign == "-"
        elif sign != "\\":
            at += 1
        _mark_end(lines, i, changes, sign)
        inside = sign in ("+", "-") or (inside and sign == "\\")
        left[0] -= sign in ("-", " ", "")
        left[1] -= sign in ("+", " ", "")
    # A text stripped at its end has lost blank context: at most three lines, of the old file and the new alike.
    stripped = left[0] == left[1] and 0 < left[0] <= 3 and not "".join(lines[i:])
    if left != [0, 0] and not stripped:
        found.unrecognised[DAMAGED] += 1
        return [], i
    way = "unified diff without its last context lines" if stripped else "unified diff"
    return [replace(change, way=way) for change in changes], i


def _mark_end(lines: list[str], i: int, changes: list[Change], sign: str) -> None:
    """Take the line end off the last line read where the diff says that the file has none there."""
    if sign in ("+", "-") and i < len(lines) and lines[i].startswith("\\"):
        block = changes[-1].added if sign == "+" else changes[-1].removed
        block[-1] = block[-1].removesuffix("\n")
