"""How good is a credit? Its local term against the truth, without training.

The truth is given by the caller, line by line: what a changed line really earned (for generated tasks: is the function
it belongs to right after the edit, minus the group's mean for that function). The audit takes seconds, and orders the
scorers as training does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from didpo.credit.diffs import rows_of
from didpo.credit.places import places_of, resolved
from didpo.credit.settings import DiDPOSettings
from didpo.credit.spans import as_offsets, token_slices
from didpo.types import GroupCredit, TrajectoryGroup


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line that a step changed. `region` is the name of its function ("" for top-level code), `text` normalised.

    `span` is its character range in the response, `trajectory` and `step` say which.
    """

    trajectory: int
    step: int
    path: str
    region: str
    edit_kind: str
    text: str
    span: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A credit against the truth over n changed lines.

    correlation: Pearson, 0 where either side is constant. sign_accuracy: share of the lines with a truth other than 0
    whose credit has its sign (a credit of 0 counts as wrong). variance, error: of the local term, and its mean squared
    distance from the truth after the best scaling. total_correlation: of A^E + lambda * A^D.
    """

    n_lines: int
    correlation: float
    sign_accuracy: float
    variance: float
    error: float
    total_correlation: float


Truth = Callable[[TrajectoryGroup, Line], float | None]


def changed_lines(group: TrajectoryGroup, settings: DiDPOSettings | None = None) -> list[Line]:
    """All lines that valid rollouts changed, in the order of trajectories, steps and responses."""
    group = resolved(group)
    rows = rows_of(group, gate=(settings or DiDPOSettings()).gate)
    places = places_of(group, rows)
    out = []
    for i, row in enumerate(rows):
        for k, root in enumerate(row.roots):
            regions = places.lines[i][k].tolist()
            for n in np.flatnonzero(root.changed).tolist():
                a, b = root.ranges[n].tolist()
                out.append(
                    Line(
                        trajectory=row.trajectory,
                        step=row.step,
                        path=root.path,
                        region=places.names[regions[n]][1] if regions[n] >= 0 else "",
                        edit_kind=root.kind,
                        text=root.lines[n],
                        span=(a, b),
                    )
                )
    return out


def line_values(
    group: TrajectoryGroup, credit: GroupCredit, lines: Iterable[Line], part: str | None = "diff"
) -> np.ndarray:
    """Mean of a part (None: of the advantages) over the tokens of each line, float64 [n]; 0 without tokens."""
    arrays = credit.advantages if part is None else credit.parts[part]
    offsets: dict[tuple[int, int], np.ndarray] = {}
    out = []
    for line in lines:
        at = (line.trajectory, line.step)
        step = group.trajectories[line.trajectory].steps[line.step]
        if at not in offsets:
            offsets[at] = as_offsets(step.n_tokens, step.token_offsets)
        first, stop = token_slices(offsets[at], np.array([line.span]))[0].tolist()
        values = arrays[line.trajectory][line.step][first:stop]
        out.append(float(values.mean(dtype=np.float64)) if len(values) else 0.0)
    return np.array(out, dtype=np.float64)


def audit(groups: Iterable[TrajectoryGroup], score: Callable[[TrajectoryGroup], GroupCredit], truth: Truth) -> Audit:
    """Compare the credit that `score` gives to each group with `truth(group, line)`; None leaves a line out."""
    local, total, wanted = [], [], []
    for group in groups:
        known = [(line, truth(group, line)) for line in changed_lines(group)]
        kept = [(line, value) for line, value in known if value is not None]
        credit = score(group)
        lines = [line for line, _ in kept]
        part = "diff" if "diff" in credit.parts else None
        local.append(line_values(group, credit, lines, part))
        total.append(line_values(group, credit, lines, None))
        wanted.append(np.array([value for _, value in kept], dtype=np.float64))
    if not wanted:
        return compare(np.zeros(0), np.zeros(0), np.zeros(0))
    return compare(np.concatenate(local), np.concatenate(total), np.concatenate(wanted))


def compare(local: np.ndarray, total: np.ndarray, truth: np.ndarray) -> Audit:
    """The numbers of an `Audit` from three arrays [n]: local term, whole advantage, truth."""
    judged = truth != 0
    energy = float((local**2).sum())
    scale = float((local * truth).sum()) / energy if energy else 0.0
    return Audit(
        n_lines=len(truth),
        correlation=correlation(local, truth),
        sign_accuracy=float((np.sign(local) == np.sign(truth))[judged].mean()) if judged.any() else 0.0,
        variance=float(local.var()) if len(local) else 0.0,
        error=float(((scale * local - truth) ** 2).mean()) if len(truth) else 0.0,
        total_correlation=correlation(total, truth),
    )


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's r; 0 where a side is constant or empty."""
    if len(a) == 0 or (a == a[0]).all() or (b == b[0]).all():
        return 0.0
    x, y = a - a.mean(), b - b.mean()
    return float((x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()))
