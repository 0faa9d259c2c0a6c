"""What `didpo credit` does between reading arguments and printing: groups in, credit per algorithm out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from didpo.config import parse_plain
from didpo.credit import CREDIT
from didpo.errors import UserError, unknown_name
from didpo.importers import ImportReport, import_file
from didpo.types import GroupCredit, TrajectoryGroup


def load_groups(files: Sequence[str], format: str) -> tuple[list[TrajectoryGroup], ImportReport]:
    """The groups of recorded files; a run directory stands for the trajectories it stored."""
    report = ImportReport()
    paths: list[Path] = []
    for name in files:
        path = Path(name)
        if (path / "config.toml").is_file():
            stored = sorted((path / "trajectories").glob("*.jsonl"))
            if not stored:
                raise UserError(
                    f"{path} holds no stored rollouts yet; train it with a smaller --logging.trajectories_every"
                )
            paths += stored
        else:
            paths.append(path)
    return import_file(paths, format=format, report=report), report


def compute_credit(
    groups: Sequence[TrajectoryGroup], names: Sequence[str], flags: Mapping[str, str]
) -> dict[str, list[GroupCredit]]:
    """{algorithm: credit of each group}. `flags` override settings of the credit functions by name."""
    settings = {name: parse_plain(value) for name, value in flags.items()}
    for name in names:
        if name not in CREDIT:
            raise unknown_name("credit function", name, CREDIT)
    return {name: [CREDIT[name](group, **settings) for group in groups] for name in names}


def credit_text(
    groups: Sequence[TrajectoryGroup], credits: Mapping[str, Sequence[GroupCredit]], report: ImportReport
) -> str:
    """A short account per algorithm, and what the import could not read."""
    rollouts = sum(len(g.trajectories) for g in groups)
    steps = sum(len(t.steps) for g in groups for t in g.trajectories)
    lines = [f"{len(groups)} groups, {rollouts} rollouts, {steps} steps"]
    lines += report.lines()
    for name, computed in credits.items():
        anchors = sum(len(c.anchors) for c in computed)
        coverage = [c.metrics["coverage"] for c in computed if "coverage" in c.metrics]
        silent = sum(1 for c in computed if not any(a.any() for t in c.advantages for a in t))
        mean = f", {100 * sum(coverage) / len(coverage):.0f} % of tokens with local credit" if coverage else ""
        lines.append(f"{name}: {anchors} anchors{mean}; {silent} groups without signal")
        lines += [f"  note: {note}" for note in dict.fromkeys(n for c in computed for n in c.notes)]
    return "\n".join(lines)


def report_json(report: ImportReport) -> dict[str, Any]:
    """The import's counts as plain JSON values."""
    return {
        "formats": dict(report.formats),
        "groups": report.groups,
        "trajectories": report.trajectories,
        "steps": report.steps,
        "edits": {
            "recognised": dict(report.recognised),
            "refused": report.refused,
            "unrecognised": dict(report.unrecognised),
        },
        "notes": list(report.notes),
    }
