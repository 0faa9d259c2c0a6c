"""Attempts at programming problems, one JSON object per line: run, function, code, status, reward.

Each function's attempts form a group; an attempt is one step that writes a whole file.
"""

from __future__ import annotations

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
    return groups_of(run for path in paths for run in _attempts(path, report))


def _attempts(path: Path, report: ImportReport) -> list[tuple[str, Trajectory]]:
    return [_attempt(row, f"{path}, line {number}", report) for number, row in read_jsonl(path)]


def _attempt(row: dict[str, Any], where: str, report: ImportReport) -> tuple[str, Trajectory]:
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
    return name, Trajectory(
        steps=[step],
        outcome=float(reward),
        stop_reason=StopReason.SOLVED if reward == 1 else StopReason.FINISHED,
        trajectory_id=str(row.get("run", where.rpartition(" ")[2])),
        meta={"status": row.get("status")},
    )
