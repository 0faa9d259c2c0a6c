"""DiDPO: the episode advantage plus a local advantage on the lines that the policy wrote. arXiv 2608.07147.

    A[i, t] = episode_weight * A^E_i + lambda * A^D(o)   for tokens t of a unit o of row i, and A^E_i elsewhere

What the local term means is the scorer's business (`scorers`), what it stands on the unit's (`units`), and which number
it compares the signal's (`signals`). Steps read top to bottom in `didpo`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from didpo.credit import scorers
from didpo.credit.diffs import Row, rows_of
from didpo.credit.matching import Embed
from didpo.credit.outcome import grpo
from didpo.credit.places import Places, places_of, resolved
from didpo.credit.settings import PRESETS, DiDPOSettings, resolve
from didpo.credit.signals import StepTable, mean, row_outcomes, row_returns, row_step_scores, row_tests
from didpo.credit.spans import as_offsets, token_slices
from didpo.credit.units import (
    Member,
    Unit,
    anchor_units,
    diff_units,
    gs,
    lines_of,
    region_label,
    region_members,
    region_units,
)
from didpo.errors import UserError
from didpo.types import Anchor, AnchorMember, GroupCredit, TrajectoryGroup


@dataclass(kw_only=True, eq=False)
class Local:
    """The local term while it is built: what to paint on which lines, and what to report."""

    paint: list[tuple[Member, float]] = field(default_factory=list)  # in order: later ones cover earlier ones
    anchors: list[Anchor] = field(default_factory=list)
    whole_rows: np.ndarray | None = None  # [N] for the control `step`: one value per row, on all its tokens
    usable: int = 0  # units that can tell anything
    in_units: set[int] = field(default_factory=set)  # rows that share a unit
    notes: list[str] = field(default_factory=list)


def didpo(
    group: TrajectoryGroup,
    *,
    settings: DiDPOSettings | None = None,
    embed: Embed | None = None,
    **overrides: Any,
) -> GroupCredit:
    """Token advantages of a group by DiDPO; parts "episode" and "diff" add up to them.

    By default test attribution where the rows record test outcomes, else a contrast of anchors (see `DiDPOSettings`).
    Only lines that a step changed earn a local term. With `lam=0`, or where nothing repeats, the result is GRPO's with
    the same `normalize`. `embed` serves `equality="similar"`. Raises `UserError` for unknown settings, numbers that are
    not finite, and recorded edits that do not stand in their response.
    """
    started = time.perf_counter()
    cfg = resolve(settings, overrides)
    base = grpo(group, settings=cfg)
    group = resolved(group)
    table = StepTable.of(group)
    rows = rows_of(group, gate=cfg.gate)
    places = places_of(group, rows)
    scorer, signal, notes = choose(group, table, places, cfg)
    lam = cfg.lam if cfg.lam is not None else (2.0 if scorer in ("region", "between") else 1.0)
    if scorer == "step":
        local = Local(whole_rows=scorers.step(signal))
    elif scorer == "tests":
        local = attribute_tests(group, rows, places, table, cfg)
    else:
        local = contrast_units(group, rows, places, signal, scorer, cfg, embed)
    diff, painted = _token_values(group, rows, table, local, lam)
    credit = GroupCredit(
        algorithm="didpo",
        advantages=[[e + d for e, d in zip(a, b, strict=True)] for a, b in zip(base.advantages, diff, strict=True)],
        parts={"episode": base.parts["episode"], "diff": diff},
        assigned=base.assigned,
        anchors=local.anchors,
        metrics=base.metrics | _metrics(rows, local, diff, painted, base.metrics["tokens"]),
        notes=[*notes, *local.notes],
    )
    credit.metrics["lambda"] = lam
    credit.metrics["seconds"] = time.perf_counter() - started
    return credit


def didpo_published(
    group: TrajectoryGroup,
    *,
    settings: DiDPOSettings | None = None,
    embed: Embed | None = None,
    **overrides: Any,
) -> GroupCredit:
    """DiDPO with the authors' settings (`DiDPOSettings.published()`), which `overrides` change one by one.

    `settings`, where given, stands in the place of the published ones.
    """
    cfg = (settings or PRESETS["published"]).override(**overrides)
    return replace(didpo(group, settings=cfg, embed=embed), algorithm="didpo_published")


def choose(
    group: TrajectoryGroup, table: StepTable, places: Places, cfg: DiDPOSettings
) -> tuple[str, np.ndarray, list[str]]:
    """Scorer and signal [N] of the valid rows, with notes in words about what was chosen and why."""
    scorer, signal = str(cfg.scorer), str(cfg.signal)
    notes = []
    with_tests = sum(bool(step.test_outcomes) for step in table.steps)
    if scorer == "auto":
        scorer = "tests" if with_tests > 1 and places.names else "region"
    if scorer == "tests":
        if table.steps and not with_tests:
            raise UserError("scorer 'tests' needs test_outcomes on the steps; none are recorded: use scorer='region'")
        left_out = len(table.steps) - with_tests
        notes.append("scorer tests: each edit gets its outcomes on the tests that its region decides")
        if left_out:
            notes.append(f"{left_out} of {len(table.steps)} rows record no test outcomes: left out of attribution")
        return scorer, np.zeros(len(table.steps)), notes
    scores = row_step_scores(table)
    if signal == "auto":
        signal = "step_score" if scores is not None else "return_to_go"
        missing = sum(step.step_score is None for step in table.steps)
        if 0 < missing < len(table.steps):
            notes.append(f"{missing} of {len(table.steps)} rows record no step score: the return-to-go serves instead")
    if signal == "step_score":
        if scores is None and table.steps:
            missing = sum(step.step_score is None for step in table.steps)
            raise UserError(f"signal 'step_score': {missing} rows record no step score; use signal='return_to_go'")
        values = np.zeros(0) if scores is None else scores
    elif signal == "return_to_go":
        values = row_returns(group, cfg.gamma)
    else:
        values = row_outcomes(group, table)
    notes.append(f"scorer {scorer} with the signal {signal}")
    return scorer, values, notes


# ---------------------------------------------------------------- what the lines earn


def attribute_tests(
    group: TrajectoryGroup, rows: Sequence[Row], places: Places, table: StepTable, cfg: DiDPOSettings
) -> Local:
    """Test attribution: each changed line gets its row's outcomes on the tests that its region decides."""
    names, some, some_known = row_tests(table)
    valid = _valid(group, rows)
    outcomes, known = np.zeros((len(rows), len(names))), np.zeros((len(rows), len(names)), dtype=bool)
    outcomes[valid], known[valid] = some, some_known
    counted = known.any(axis=1)
    local = Local()
    for r, editing in enumerate(places.edited(rows)):
        stands = np.flatnonzero((places.content[r] >= 0) & counted)
        term = np.full(len(rows), np.nan)
        term[stands], weights = scorers.tests(outcomes[stands], known[stands], places.content[r][stands])
        own = (outcomes * weights).sum(axis=1) / max(1.0, float(weights.sum()))  # [N] score on the decided tests
        inside = [i for i in editing if not np.isnan(term[i])]
        members = [m for i in inside for m in region_members(i, rows[i], places, r)]
        local.paint += [(m, float(term[m.row])) for m in members]
        if not members:
            continue
        decides = bool(weights.any())
        local.usable += decides
        local.in_units.update(inside if decides else ())
        length = sum(len(m.lines) for m in members) / len(inside)
        unit = Unit(
            kind="region",
            edit_kind=rows[members[0].row].roots[members[0].root].kind,
            lines=lines_of(members[0], rows),
            length=length,
            groupability=gs(length, len(inside), cfg),
            members=tuple(members),
            rows=tuple(inside),
            alternatives=(),
            label=region_label(places.names[r]) + _decided(names, weights),
        )
        local.anchors.append(_anchor(len(local.anchors), unit, rows, own, term, None))
    # A token that holds text of two lines takes the term of the later one.
    local.paint.sort(key=lambda pair: (pair[0].row, pair[0].root, int(pair[0].lines[0])))
    if not places.names and any(row.roots for row in rows):
        local.notes.append("no file of the edits is recorded: their regions are not known, no local term")
    return local


def contrast_units(
    group: TrajectoryGroup,
    rows: Sequence[Row],
    places: Places,
    signal: np.ndarray,
    scorer: str,
    cfg: DiDPOSettings,
    embed: Embed | None,
) -> Local:
    """Anchors (or regions, or whole diffs) scored by `within`, `between` or `region`."""
    y = np.full(len(rows), np.nan)
    valid = _valid(group, rows)
    y[valid] = signal
    if cfg.unit == "anchor":
        units = anchor_units(rows, places, cfg, embed)
    else:
        units = (region_units if cfg.unit == "region" else diff_units)(rows, places, cfg)
    units = [unit for unit in units if len(unit.rows) > 1]
    local = Local()
    scored: list[tuple[Unit, np.ndarray]] = []
    for unit in units:
        inside = np.array(unit.rows)
        others = np.array(unit.alternatives, dtype=np.int64) if scorer == "region" else np.setdiff1d(valid, inside)
        term = np.full(len(rows), np.nan)
        if scorer == "within":
            term[inside] = scorers.within(
                y[inside], normalize=cfg.local_normalize, std_kind=cfg.local_std, epsilon=cfg.epsilon
            )
        else:
            term[inside] = scorers.between(y[inside], y[others], kappa=cfg.kappa)
        local.usable += scorer == "within" or len(others) > 0
        local.in_units.update(unit.rows)
        contrast = scorers.contrast(y[inside], y[others])
        local.anchors.append(_anchor(len(local.anchors), unit, rows, y, term, contrast))
        scored.append((unit, term))
    scored.reverse()
    scored.sort(key=lambda pair: pair[0].groupability)  # the best comes last, on top; of equals the first
    for unit, term in scored:
        local.paint += [(m, float(term[m.row])) for m in unit.members]
    if not units:
        local.notes.append("nothing repeats among the edits: no local term, the advantages are GRPO's")
    return local


def _valid(group: TrajectoryGroup, rows: Sequence[Row]) -> np.ndarray:
    """Numbers of the rows whose rollout did not fail: the rows of `StepTable`, in its order."""
    return np.array([i for i, row in enumerate(rows) if not group.trajectories[row.trajectory].failed], dtype=np.int64)


def _decided(names: list[str], weights: np.ndarray) -> str:
    """The tests that a region decides, heaviest first, for people."""
    order = [j for j in np.argsort(-weights, kind="stable").tolist() if weights[j] > 0]
    if not order:
        return ""
    shown = ", ".join(f"{names[j]} {weights[j]:.2f}" for j in order[:3])
    return f" decides {shown}" + (f" and {len(order) - 3} more" if len(order) > 3 else "")


def _anchor(
    number: int, unit: Unit, rows: Sequence[Row], signal: np.ndarray, term: np.ndarray, contrast: float | None
) -> Anchor:
    members = tuple(
        AnchorMember(
            trajectory=rows[m.row].trajectory,
            step=rows[m.row].step,
            path=rows[m.row].roots[m.root].path,
            spans=_merged(rows[m.row].roots[m.root].ranges[m.lines]),
            signal=float(signal[m.row]),
            advantage=float(term[m.row]),
        )
        for m in unit.members
    )
    return Anchor(
        anchor_id=number,
        kind=unit.kind,
        edit_kind=unit.edit_kind,
        lines=unit.lines,
        length=float(unit.length),
        n_rows=len(unit.rows),
        groupability=float(unit.groupability),
        mean_signal=mean(signal[list(unit.rows)]),
        contrast=contrast,
        members=members,
        label=unit.label,
    )


def _merged(ranges: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Ranges of lines, joined where nothing but the line end lies between."""
    out: list[tuple[int, int]] = []
    for start, stop in ranges.tolist():
        if out and start <= out[-1][1] + 1:
            out[-1] = (out[-1][0], stop)
        else:
            out.append((start, stop))
    return tuple(out)


# ---------------------------------------------------------------- from lines to tokens


def _token_values(
    group: TrajectoryGroup, rows: Sequence[Row], table: StepTable, local: Local, lam: float
) -> tuple[list[list[np.ndarray]], int]:
    """lambda * A^D per token, float32 [T] per step, and how many tokens a unit covers. 0 where there is none."""
    out = [[np.zeros(step.n_tokens, dtype=np.float32) for step in t.steps] for t in group.trajectories]
    if local.whole_rows is not None:
        for (g, s), value in zip(table.where, (local.whole_rows * lam).tolist(), strict=True):
            out[g][s][:] = value
        return out, sum(len(out[g][s]) for g, s in table.where)
    by_row: dict[int, list[tuple[Member, float]]] = {}
    for member, value in local.paint:
        by_row.setdefault(member.row, []).append((member, value * lam))
    if not by_row:
        return out, 0
    # One projection for the whole group: the responses are laid end to end, a character apart.
    offsets: list[np.ndarray] = []
    ranges: list[np.ndarray] = []
    each: list[float] = []
    base = 0
    for i, parts in by_row.items():
        row = rows[i]
        step = group.trajectories[row.trajectory].steps[row.step]
        own = as_offsets(step.n_tokens, step.token_offsets)
        offsets.append(own + base)
        for m, value in parts:
            ranges.append(row.roots[m.root].ranges[m.lines] + base)
            each += [value] * len(m.lines)
        base += 1 + max(len(step.response), int(own[-1, 1]) if len(own) else 0)
    laid = np.concatenate(offsets)
    values = np.full(len(laid), np.nan)
    for (first, stop), value in zip(token_slices(laid, np.concatenate(ranges)).tolist(), each, strict=True):
        values[first:stop] = value
    covered = ~np.isnan(values) & (laid[:, 1] > laid[:, 0])  # an empty token belongs to no line
    flat = np.where(covered, values, 0.0).astype(np.float32)
    at = 0
    for i, own in zip(by_row, offsets, strict=True):
        out[rows[i].trajectory][rows[i].step] = flat[at : at + len(own)].copy()
        at += len(own)
    return out, int(covered.sum())


def _metrics(
    rows: Sequence[Row], local: Local, diff: list[list[np.ndarray]], painted: int, tokens: float
) -> dict[str, float]:
    """Numbers for the report. singletons: rows with changed lines that share no unit with another row."""
    editing = [i for i, row in enumerate(rows) if any(root.changed.any() for root in row.roots)]
    alone = sum(i not in local.in_units for i in editing)
    sizes = [anchor.n_rows for anchor in local.anchors]
    values = [a for row in diff for a in row if len(a)]
    return {
        "anchors": float(len(sizes)),
        "usable_groups": float(local.usable),
        "anchor_rows": float(np.mean(sizes)) if sizes else 0.0,
        "anchor_length": float(np.mean([a.length for a in local.anchors])) if sizes else 0.0,
        "editing_rows": float(len(editing)),
        "singletons": float(alone),
        "singleton_share": alone / len(editing) if editing else 0.0,
        "coverage": painted / tokens if tokens else 0.0,
        "diff_abs_mean": float(np.abs(np.concatenate(values)).mean()) if values else 0.0,
    }
