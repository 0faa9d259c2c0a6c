"""Attempts at programming problems, one JSON object per line: run, function, code, status, reward.

Each function's attempts form a group; an attempt is one step that writes a whole file. Different problems may share a
name: attempts whose function has other parameters are of another problem, and form a group of their own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.importers.common import Found, ImportReport, groups_of, span, text_of
from didpo.trajectories import read_jsonl
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup

PATH = "solution.py"


def matches(row: dict[str, Any]) -> bool:
    return {"function", "code", "reward"} <= row.keys()


def load(paths: list[Path], report: ImportReport) -> list[TrajectoryGroup]:
    attempts = [_attempt(row, f"{path}, line {n}", report) for path in paths for n, row in read_jsonl(path)]
    problems: dict[str, set[str]] = {}
    for name, parameters, _ in attempts:
        problems.setdefault(name, set()).add(parameters)
    for name in sorted(n for n, found in problems.items() if len(found) > 1):
        report.notes.append(f"{name}: {len(problems[name])} problems share this name; each is a group")
    return groups_of((f"{n}({p})" if len(problems[n]) > 1 else n, attempt) for n, p, attempt in attempts)


def _parameters(name: str, code: str) -> str:
    """The parameters of `def name(...)` without types; "" where the code does not define it."""
    match = re.search(rf"^[ \t]*def {re.escape(name)}\((?P<parameters>[^)]*)\)", code, re.MULTILINE)
    names = [p.split(":")[0].strip() for p in match["parameters"].split(",")] if match else []
    return ", ".join(n for n in names if n not in ("", "self"))


def _attempt(row: dict[str, Any], where: str, report: ImportReport) -> tuple[str, str, Trajectory]:
    name, code = text_of(row, "function", where), text_of(row, "code", where)
    reward = row.get("reward")
    if not isinstance(reward, bool | int | float):
        raise UserError(f"{where}: field 'reward' must be true, false or a number")
    found = Found()
    found.add("whole file", span(code, 0, len(code), PATH, "overwrite"))
    step = Step(
        response=code,
        reward=float(reward),
        files_before={},
        files_after={PATH: code},
        step_score=float(reward),
        edits=found.report_to(report, refused=False),
        observation=row.get("status"),
        action="edit",
        finish_reason="stop",
    )
    return (
        name,
        _parameters(name, code),
        Trajectory(
            steps=[step],
            outcome=float(reward),
            stop_reason=StopReason.SOLVED if reward == 1 else StopReason.FINISHED,
            trajectory_id=str(row.get("run", where.rpartition(" ")[2])),
            meta={"status": row.get("status")},
        ),
    )
