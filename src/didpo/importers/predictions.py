"""SWE-bench style predictions: rows {instance_id, model_patch, model_name_or_path}, as JSONL, or as one JSON list or
object of them.

The predictions for one instance, also across files, form a group of one-step rollouts; "resolved" gives the outcome.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.importers.common import ImportReport, groups_of, load_json, text_of
from didpo.importers.diffs import step_of_diff
from didpo.trajectories import read_jsonl
from didpo.types import Trajectory, TrajectoryGroup


def matches(value: Any) -> bool:
    """True for a row, a list of rows, or an object {instance_id: row}."""
    rows = _rows_in(value)
    return bool(rows) and all(isinstance(r, dict) and {"instance_id", "model_patch"} <= r.keys() for r in rows)


def _rows_in(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value] if "model_patch" in value else list(value.values())
    return value if isinstance(value, list) else []


def load(paths: list[Path], report: ImportReport) -> list[TrajectoryGroup]:
    return groups_of(_prediction(row, where, report) for path in paths for row, where in _rows(path))


def _rows(path: Path) -> list[tuple[dict[str, Any], str]]:
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return [(row, f"{path}, line {n}") for n, row in read_jsonl(path)]
    value = load_json(path)
    if not matches(value):
        raise UserError(f"{path}: expected predictions with instance_id and model_patch")
    return [(row, f"{path}, prediction {i}") for i, row in enumerate(_rows_in(value))]


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
