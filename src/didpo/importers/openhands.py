"""OpenHands event histories, one JSON object per line: instance_id, history [action and observation events], error.

An action event is a step: its thought and its tool call, written out as in `common.render_call`. Edits are the calls of
the file editor (create, str_replace, insert) and shell commands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.importers.common import Found, ImportReport, groups_of, refused, relative, render_call, text_of
from didpo.importers.shell import shell_edits
from didpo.importers.swe_agent import editor_edits
from didpo.trajectories import read_jsonl
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup

UPLOADED = re.compile(r"<uploaded_files>\s*(\S+)\s*</uploaded_files>")
ARGUMENTS = {
    "run": ("command",),
    "edit": ("command", "path", "file_text", "old_str", "new_str", "insert_line"),
    "write": ("path", "content"),
    "read": ("path", "view_range"),
    "think": ("thought",),
    "message": ("content",),
    "finish": ("final_thought", "task_completed"),
    "run_ipython": ("code",),
}
KINDS = {"edit": "edit", "write": "edit", "finish": "finish"}


def matches(row: dict[str, Any]) -> bool:
    return "instance_id" in row and isinstance(row.get("history"), list)


def load(paths: list[Path], report: ImportReport) -> list[TrajectoryGroup]:
    return groups_of(_run(row, f"{path}, line {number}", report) for path in paths for number, row in read_jsonl(path))


def _run(row: dict[str, Any], where: str, report: ImportReport) -> tuple[str, Trajectory]:
    if not matches(row):
        raise UserError(f"{where}: not an OpenHands row (no 'instance_id' and 'history')")
    events = [e for e in row["history"] if isinstance(e, dict)]
    folder = UPLOADED.search(str(row.get("instruction"))) or next(
        filter(None, (UPLOADED.search(str(e.get("message"))) for e in events[:4])), None
    )
    root = folder[1] if folder else "/workspace"
    answers = {e["cause"]: e for e in events if e.get("cause") is not None and "observation" in e}
    steps = [
        _step(e, answers.get(e.get("id"), {}), root, report)
        for e in events
        if e.get("source") == "agent" and e.get("action") in ARGUMENTS
    ]
    result = row.get("test_result") or {}
    resolved = (result.get("report") or {}).get("resolved")
    task_id = text_of(row, "instance_id", where)
    return task_id, Trajectory(
        steps=steps,
        outcome=float(resolved) if isinstance(resolved, bool) else None,
        stop_reason=_stop_reason(row, steps),
        error=str(row["error"]) if row.get("error") else None,
        trajectory_id=f"{task_id}/{where.rpartition(' ')[2]}",
        meta={"submission": result["git_patch"]} if result.get("git_patch") else {},
    )


def _stop_reason(row: dict[str, Any], steps: list[Step]) -> StopReason:
    if row.get("error"):
        limit = re.search(r"iteration|stuck", str(row["error"]), re.IGNORECASE)
        return StopReason.TURN_LIMIT if limit else StopReason.MODEL_ERROR
    finished = bool(steps) and steps[-1].action == "finish"
    return StopReason.FINISHED if finished else StopReason.TURN_LIMIT


def _step(event: dict[str, Any], answer: dict[str, Any], root: str, report: ImportReport) -> Step:
    kind, arguments = event["action"], event.get("args") or {}
    given = {k: arguments[k] for k in ARGUMENTS[kind] if arguments.get(k) is not None}
    name = (event.get("tool_call") or event.get("tool_call_metadata") or {}).get("function_name") or kind
    thought = "" if kind == "think" else str(arguments.get("thought") or "")
    response, starts = render_call(thought, name, given)
    observation = answer.get("content") or ""
    found = Found()
    if kind == "run" and "command" in starts:
        found = shell_edits(response, starts["command"], starts["command"] + len(given["command"]), root)
    elif kind == "write":
        editor = {"command": "create", "path": given.get("path", ""), "file_text": given.get("content", "")}
        editor_edits(found, response, "create", editor, {"file_text": starts.get("content", 0)}, _path(given, root))
    elif kind == "edit" and given.get("command") in ("create", "str_replace", "insert", "undo_edit"):
        editor_edits(found, response, name, given, starts, _path(given, root))
    elif kind == "edit":
        found.unrecognised["an edit that a second model applied"] += 1
    edits = found.report_to(report, refused=refused(observation))
    action = "edit" if found.ways or found.unrecognised else KINDS.get(kind, "run")
    return Step(response=response, observation=observation, edits=edits, action=action)


def _path(arguments: dict[str, Any], root: str) -> str:
    return relative(str(arguments.get("path", "")), root)
