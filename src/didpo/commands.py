"""What `didpo credit` does between reading arguments and printing: groups in, credit per algorithm out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from didpo.config import parse_plain
from didpo.credit import CREDIT
from didpo.credit.audit import Line, audit
from didpo.errors import UserError, unknown_name
from didpo.importers import ImportReport, import_file
from didpo.types import GroupCredit, TrajectoryGroup

# Forms of the local term that an audit sets side by side: name -> overrides of DiDPOSettings.
AUDITED: dict[str, dict[str, Any]] = {
    "published: within, return-to-go": {"preset": "published"},
    "between, return-to-go": {"scorer": "between", "signal": "return_to_go"},
    "between, step score": {"scorer": "between", "signal": "step_score"},
    "region, step score": {"scorer": "region", "signal": "step_score"},
    "region, step score, similar anchors": {"scorer": "region", "signal": "step_score", "equality": "similar"},
    "whole function, return-to-go": {"scorer": "region", "unit": "region", "signal": "return_to_go"},
    "whole function, step score": {"scorer": "region", "unit": "region", "signal": "step_score"},
    "whole diff, step score": {"scorer": "between", "unit": "diff", "signal": "step_score"},
    "control: step score, no diff": {"scorer": "step", "signal": "step_score"},
    "tests (the default)": {"scorer": "tests"},
}


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


def credit_text(credits: Mapping[str, Sequence[GroupCredit]], report: ImportReport) -> str:
    """A short account per algorithm, and what the import could not read."""
    lines = report.lines()
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


def function_truth(group: TrajectoryGroup, line: Line) -> float | None:
    """What a changed line really earned, where tests are named "function/number": is its function right after the step
    (all its tests pass), minus the share of the group's rows in which it is. None where no test bears its name."""

    def right(outcomes: Mapping[str, bool] | None) -> float | None:
        own = [passed for name, passed in (outcomes or {}).items() if name.rsplit("/", 1)[0] == line.region]
        return float(all(own)) if own else None

    rows = [right(step.test_outcomes) for t in group.trajectories if not t.failed for step in t.steps]
    known = [value for value in rows if value is not None]
    own = right(group.trajectories[line.trajectory].steps[line.step].test_outcomes)
    return None if own is None else own - sum(known) / len(known)


def audit_groups(groups: Sequence[TrajectoryGroup], flags: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """{form of the local term: its audit against the truth of generated tasks}. See `didpo.credit.audit`."""
    settings = {name: parse_plain(value) for name, value in flags.items()}
    scores = {}
    for name, form in AUDITED.items():
        score = functools.partial(CREDIT["didpo"], **{**form, **settings})
        scores[name] = dataclasses.asdict(audit(groups, score, function_truth))
    if not next(iter(scores.values()))["n_lines"]:
        raise UserError(
            "no truth to audit against: tests must be named function/number, as those of generated tasks are"
        )
    return scores


def audit_text(scores: Mapping[str, Mapping[str, float]]) -> str:
    """The audit as a table, best correlation first."""
    lines = [f"{'local term':38} {'correlation':>11} {'sign right':>10} {'with episode':>12}"]
    for name, row in sorted(scores.items(), key=lambda item: -item[1]["correlation"]):
        lines.append(
            f"{name:38} {row['correlation']:11.3f} {row['sign_accuracy']:10.3f} {row['total_correlation']:12.3f}"
        )
    return "\n".join([*lines, f"over {next(iter(scores.values()))['n_lines']:.0f} changed lines"])
