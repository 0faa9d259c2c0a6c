"""SWE-agent trajectories (`.traj`, JSON): {trajectory: [{action, observation, response, ...}], history, info}.

Edits come in several dialects: `edit N:M` with a text up to `end_of_edit` (the line range of the open file), `edit`
between cursors, `edit 'search' 'replace'`, `insert 'text' [line]`, `str_replace_editor`, and shell commands. Which file
is open is read from the observations ("[File: PATH (N lines total)]"). Where the model answered by a function call, the
recording holds no response text: it is written out as in `common.render_call`.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.importers.common import Found, ImportReport, groups_of, load_json, refused, relative, render_call, span
from didpo.importers.shell import shell_edits
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup

OPEN_FILE = re.compile(r"\[File: (?P<path>[^\n]+?) \(\d+ lines total\)\]")
CURSOR = re.compile(r"START_CURSOR moved to (\d+)")
LINE_EDIT = re.compile(
    r"edit(?:[ \t]+(?P<start>\d+):(?P<end>\d+))?[ \t]*\r?\n(?P<body>.*?)(?:^end_of_edit[ \t]*$|\Z)", re.S | re.M
)
# `owner__repo-123` or `problem-123` at the end of a file name, behind the run's settings
INSTANCE = re.compile(r"(?:^|__)(?P<id>(?:[A-Za-z0-9.-]+__)?[A-Za-z0-9.]+(?:-[A-Za-z0-9.]+)+)$")
EXIT = {"submitted": StopReason.FINISHED, "exit_cost": StopReason.TOKEN_BUDGET, "exit_context": StopReason.TOKEN_BUDGET}


def matches(row: dict[str, Any]) -> bool:
    if isinstance(row.get("trajectory"), list):
        return all(isinstance(t, dict) and "action" in t for t in row["trajectory"][:1])
    history = row.get("history")
    return isinstance(history, list) and any(isinstance(h, dict) and "message_type" in h for h in history)


def load(paths: list[Path], report: ImportReport) -> list[TrajectoryGroup]:
    return groups_of(_run(path, report) for path in paths)


@dataclass(kw_only=True)
class _State:
    """What the recording shows of the workspace before an action."""

    root: str = ""
    open_file: str = ""
    cursor: int = 0  # first line of the cursor range, from 1; 0 where no cursors are shown


def _run(path: Path, report: ImportReport) -> tuple[str, Trajectory]:
    row = load_json(path)
    if not isinstance(row, dict) or not matches(row):
        raise UserError(f"{path}: not an SWE-agent trajectory (no 'trajectory' with actions, no 'history')")
    turns = row.get("trajectory") or _turns_of_history(row["history"])
    info = row.get("info") or {}
    state = _State(root=_root(turns))
    steps = [_step(turn, state, report, f"{path}, step {i}") for i, turn in enumerate(turns)]
    match = INSTANCE.search(path.name.removesuffix(".traj"))
    exit_status = str(info.get("exit_status") or "")
    meta = {k: info[k] for k in ("exit_status", "submission") if info.get(k) is not None}
    return match["id"] if match else path.name.removesuffix(".traj"), Trajectory(
        steps=steps,
        stop_reason=EXIT.get(exit_status.split(" ")[0], StopReason.FINISHED),
        trajectory_id=path.name.removesuffix(".traj"),
        meta=meta,
    )


def _turns_of_history(history: list[Any]) -> list[dict[str, Any]]:
    """Turns of a recording that has only the history: each action with the message after it."""
    turns = []
    for entry, after in zip(history, [*history[1:], {}], strict=True):
        if isinstance(entry, dict) and entry.get("message_type") == "action":
            turns.append({**entry, "response": entry.get("content"), "observation": after.get("content") or ""})
    return turns


def _root(turns: list[dict[str, Any]]) -> str:
    """The folder in which the recording starts: the repository."""
    for turn in turns:
        if folder := _state_of(turn).get("working_dir"):
            return folder
        if shown := re.search(r"\(Current directory: ([^)\n]+)\)", str(turn.get("observation"))):
            return shown[1]
    return ""


def _state_of(turn: dict[str, Any]) -> dict[str, Any]:
    state = turn.get("state")
    if isinstance(state, str):
        try:
            state = json.loads(state)
        except ValueError:  # some recordings hold plain shell output here
            return {}
    return state if isinstance(state, dict) else {}


def _step(turn: dict[str, Any], state: _State, report: ImportReport, where: str) -> Step:
    action, observation = turn.get("action") or "", turn.get("observation") or ""
    response = turn.get("response") or turn.get("thought") or ""
    if not all(isinstance(text, str) for text in (action, observation, response)):
        raise UserError(f"{where}: action, observation and response must be texts")
    response, start, calls = _response(response, action)
    found = Found()
    end = start + len(action.strip())
    if calls is not None:
        _call_edits(found, response, calls, state)
    elif match := LINE_EDIT.match(response[start:end]):
        _line_edit(found, response, start, match, state)
    else:
        found = shell_edits(response, start, end, state.root)
        if re.match(r"(edit|insert|str_replace_editor)\b", action) and not found.ways:
            found.unrecognised["an edit command of a form that is not followed"] += 1
    edits = found.report_to(report, refused=refused(observation))
    _look(observation, action, state)
    return Step(
        response=response,
        observation=observation,
        edits=edits,
        action="edit" if found.ways or found.unrecognised else "finish" if action.strip() == "submit" else "run",
    )


def _response(response: str, action: str) -> tuple[str, int, tuple[str, dict[str, str], dict[str, int]] | None]:
    """Response text, where the action stands in it, and the edit call (name, arguments, their starts) if it is one."""
    stripped = action.strip()
    call = _parse_call(stripped)
    at = response.rfind(stripped) if stripped else 0
    if call is None or (at >= 0 and stripped):
        if at >= 0:
            if call is not None:
                name, arguments = call
                starts = {k: response.find(v, at) for k, v in arguments.items()}
                return response, at, (name, arguments, starts)
            return response, at, None
        return f"{response.strip()}\n\n{stripped}", len(response.strip()) + 2, None
    name, arguments = call
    text, starts = render_call(response, name, arguments)
    return text, len(text), (name, arguments, starts)


def _parse_call(action: str) -> tuple[str, dict[str, str]] | None:
    """Name and arguments of an edit command whose texts are quoted words; None for any other action."""
    if not re.match(r"(edit|insert)[ \t]+['\"]|str_replace_editor[ \t]", action):
        return None
    try:
        words = shlex.split(action)
    except ValueError:  # an unclosed quote: counted by the caller as not followed
        return None
    if words[0] == "edit" and len(words) in (3, 4):
        return "edit", {"search": words[1], "replace": words[2], **({"all": words[3]} if len(words) == 4 else {})}
    if words[0] == "insert" and len(words) in (2, 3):
        return "insert", {"text": words[1], **({"line": words[2]} if len(words) == 3 else {})}
    if words[0] == "str_replace_editor" and len(words) >= 3:
        flags = dict(zip(words[3::2], words[4::2], strict=False))
        return "str_replace_editor", {
            "command": words[1],
            "path": words[2],
            **{k.removeprefix("--"): v for k, v in flags.items()},
        }
    return None


def _call_edits(found: Found, response: str, call: tuple[str, dict[str, str], dict[str, int]], state: _State) -> None:
    name, arguments, starts = call
    path = relative(arguments["path"], state.root) if "path" in arguments else state.open_file
    editor_edits(found, response, name, arguments, starts, path)


def editor_edits(
    found: Found, response: str, name: str, arguments: dict[str, Any], starts: dict[str, int], path: str
) -> None:
    """Edits of one call of an editor tool whose argument values stand in the response at `starts`."""

    def piece(key: str, kind: str, line: int = 0) -> Any:
        text = arguments.get(key)
        if not text:
            return None
        return span(response, starts[key], starts[key] + len(text), path, kind, line)

    command = arguments.get("command", name)
    if any(v and starts.get(k, -1) < 0 for k, v in arguments.items() if k in ("search", "replace", "text")):
        found.unrecognised["quoted text with escapes"] += 1
    elif command == "edit":
        found.add("search and replace", piece("search", "del"), piece("replace", "add"))
    elif command == "str_replace":
        found.add("str_replace_editor", piece("old_str", "del"), piece("new_str", "add"))
    elif command == "create":
        found.add("str_replace_editor", piece("file_text", "overwrite"))
    elif command == "insert":
        key = "new_str" if "new_str" in arguments else "text"
        line = int(arguments.get("insert_line") or arguments.get("line") or 0)
        found.add("str_replace_editor" if key == "new_str" else "insert", piece(key, "add", line))
    elif command == "undo_edit":
        found.unrecognised["an edit undone"] += 1


def _line_edit(found: Found, response: str, base: int, match: re.Match[str], state: _State) -> None:
    if not state.open_file:
        found.unrecognised["a line edit where no open file is shown"] += 1
        return
    line = int(match["start"] or state.cursor or 1) - 1
    body = span(response, base + match.start("body"), base + match.end("body"), state.open_file, "add", line)
    found.add("line range" if match["start"] else "cursor range", body)


def _look(observation: str, action: str, state: _State) -> None:
    """Take the open file and the cursor from what the environment showed."""
    if shown := OPEN_FILE.search(observation):
        state.open_file = relative(shown["path"], state.root)
    if moved := CURSOR.search(observation):
        state.cursor = int(moved[1])
    elif asked := re.match(r"set_cursors (\d+)", action):
        state.cursor = int(asked[1])
