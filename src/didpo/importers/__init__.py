"""Recorded trajectories of other agents, turned into groups that the credit engine reads.

`import_file` takes one file, several, or a folder; rollouts of the same task form one group, also across files. Every
edit that is recognised is an exact span of the response; what is not is counted in the report, never guessed.

Most recordings hold no verdict. A file `outcomes.json` among the files gives it: {trajectory_id: true, false or 0..1}.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from didpo.errors import UserError, unknown_name
from didpo.importers import diffs, mini_swe_agent, openhands, predictions, reflexion, swe_agent
from didpo.importers.common import ImportReport, load_json
from didpo.trajectories import VERSION_KEY, read_groups, read_jsonl
from didpo.types import TrajectoryGroup

__all__ = ["FORMATS", "ImportReport", "import_file"]

# name on the command line -> module with load(paths, report)
FORMATS: dict[str, ModuleType | None] = {
    "didpo": None,
    "reflexion": reflexion,
    "swe-agent": swe_agent,
    "mini-swe-agent": mini_swe_agent,
    "openhands": openhands,
    "predictions": predictions,
    "diff": diffs,
}
SUFFIXES = (".traj", ".traj.json", ".jsonl", ".jsonl.gz", ".diff", ".patch")
OUTCOMES = "outcomes.json"


def import_file(
    paths: str | Path | Sequence[str | Path], *, format: str = "auto", report: ImportReport | None = None
) -> list[TrajectoryGroup]:
    """The groups in one or more recordings; `report`, where given, is filled with what was found and what was not.

    Raises UserError for a file that cannot be read, is of no known format, or holds no rollout.
    """
    if format != "auto" and format not in FORMATS:
        raise unknown_name("format", format, [*FORMATS, "auto"])
    report = ImportReport() if report is None else report
    by_format: dict[str, list[Path]] = {}
    found = _files(paths)
    for path in (p for p in found if p.name != OUTCOMES):
        name = detect(path) if format == "auto" else format
        by_format.setdefault(name, []).append(path)
    groups: list[TrajectoryGroup] = []
    for name, files in by_format.items():
        module = FORMATS[name]
        groups += module.load(files, report) if module else _own(files)
        report.formats[name] += len(files)
    if not groups:
        raise UserError(f"no rollouts in {', '.join(map(str, found))}")
    for path in (p for p in found if p.name == OUTCOMES):
        _set_outcomes(path, groups)
    report.groups += len(groups)
    report.trajectories += sum(len(g.trajectories) for g in groups)
    report.steps += sum(len(t.steps) for g in groups for t in g.trajectories)
    bare = sum(t.outcome is None and all(s.reward is None for s in t.steps) for g in groups for t in g.trajectories)
    if bare:
        report.notes.append(
            f"{bare} rollouts carry no outcome and count as 0: give a file {OUTCOMES} with "
            "{trajectory_id: true, false or 0..1}"
        )
    return groups


def detect(path: Path) -> str:
    """The name of the format of a file, from its content."""
    if path.name.endswith((".diff", ".patch")):
        return "diff"
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        first = next(read_jsonl(path), None)
        if first is None:
            raise UserError(f"{path} is empty")
        value: Any = first[1]
    else:
        value = load_json(path)
    if isinstance(value, dict):
        if VERSION_KEY in value:
            return "didpo"
        for name in ("reflexion", "openhands", "swe-agent"):
            module = FORMATS[name]
            assert module is not None
            if module.matches(value):
                return name
    for name, matches in (("mini-swe-agent", mini_swe_agent.matches), ("predictions", predictions.matches)):
        if matches(value):
            return name
    raise UserError(f"{path}: no known format of trajectories; name it with --format ({', '.join(FORMATS)})")


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    files = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        path = Path(path)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.name.endswith((*SUFFIXES, OUTCOMES)) and p.is_file())
            if not inside:
                raise UserError(f"no trajectory files in {path} (looked for {', '.join(SUFFIXES)})")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"no such file: {path}")
    return files


def _own(files: list[Path]) -> list[TrajectoryGroup]:
    return [group for path in files for group in read_groups(path)]


def _set_outcomes(path: Path, groups: Sequence[TrajectoryGroup]) -> None:
    """Take the verdicts of a file {trajectory_id: true, false or a number from 0 to 1}."""
    outcomes = load_json(path)
    if not isinstance(outcomes, dict):
        raise UserError(f"{path}: expected one JSON object {{trajectory_id: true, false or a number from 0 to 1}}")
    rollouts = {t.trajectory_id: t for g in groups for t in g.trajectories}
    for name, value in outcomes.items():
        if name not in rollouts:
            raise unknown_name(f"rollout in {path}", name, rollouts)
        if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
            raise UserError(f"{path}: the outcome of {name!r} must be true, false or a number from 0 to 1")
        rollouts[name].outcome = float(value)
