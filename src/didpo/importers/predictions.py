"""SWE-bench style predictions, one JSON object per line: instance_id, model_patch, model_name_or_path.

The predictions for one instance, also across files, form a group of one-step rollouts; "resolved" gives the outcome.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from didpo.importers.common import ImportReport, groups_of, text_of
from didpo.importers.diffs import step_of_diff
from didpo.trajectories import read_jsonl
from didpo.types import Trajectory, TrajectoryGroup


def matches(row: dict[str, Any]) -> bool:
    return "instance_id" in row and "model_patch" in row


def load(paths: list[Path], report: ImportReport) -> list[TrajectoryGroup]:
    return groups_of(_prediction(row, f"{path}, line {n}", report) for path in paths for n, row in read_jsonl(path))


def _prediction(row: dict[str, Any], where: str, report: ImportReport) -> tuple[str, Trajectory]:
    patch = row.get("model_patch") or ""  # null where the model gave none
    resolved = row.get("resolved")
    outcome = float(resolved) if isinstance(resolved, bool | int | float) else None
    task_id = text_of(row, "instance_id", where)
    return task_id, Trajectory(
        steps=[step_of_diff(patch, report, where, outcome)],
        outcome=outcome,
        trajectory_id=text_of(row, "model_name_or_path", where, default="model"),
    )
