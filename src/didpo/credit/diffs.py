"""Root diffs: what each step wrote, line by line, normalised for matching, with raw ranges and the gate.

Normalisation (for matching only) drops comments, trailing blanks and blank lines; see `comments`. Only "\\n" ends a
line. The ranges stay those of the raw response, so a run of lines maps back exactly, whatever was dropped between.

The gate says which lines are changes. With "lines", lines are compared, normalised, between the file before and after
the action: what an overwrite merely writes again is no change, nor is what a replacement repeats of its search text.
A line that moved is one. "payload" closes the gate only for a payload that repeats byte for byte what it replaces (the
rule of the published code); "none" leaves it open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rapidfuzz.distance import LCSseq

from didpo.credit.comments import syntax_of
from didpo.types import EditSpan, Step, TrajectoryGroup

Gate = Literal["lines", "payload", "none"]

_MAX_CELLS = 400_000_000  # cells of one alignment: bits of a matrix, 50 MB


@dataclass(frozen=True, kw_only=True)
class Root:
    """One root diff: the text that one edit wrote ("add", "overwrite") or searched ("del"), in normalised lines.

    `row` is the index of its step in `rows_of`. ranges: int64 [n, 2], the raw character range in the response of every
    normalised line, without its line end. changed: bool [n], the gate.
    """

    row: int
    path: str
    kind: Literal["add", "del", "overwrite"]
    lines: tuple[str, ...]
    ranges: np.ndarray
    changed: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step of one trajectory, with its root diffs in the order of the response."""

    trajectory: int
    step: int
    roots: tuple[Root, ...]


def rows_of(group: TrajectoryGroup, *, gate: Gate = "lines") -> list[Row]:
    """One `Row` per step, in the order of trajectories and steps; a failed trajectory gives rows without roots.

    Raises ValueError where an edit of a step does not stand at its own range of the response.
    """
    from didpo.actions import edit_spans

    rows: list[Row] = []
    for g, trajectory in enumerate(group.trajectories):
        for s, step in enumerate(trajectory.steps):
            spans = () if trajectory.failed else tuple(edit_spans(step))
            rows.append(Row(trajectory=g, step=s, roots=_roots(len(rows), step, spans, gate)))
    return rows


def normalise(text: str, path: str, start: int = 0) -> tuple[list[str], np.ndarray]:
    """Normalised lines of `text` and their raw ranges, int64 [n, 2], shifted by `start`."""
    raw = text.split("\n")
    lines = syntax_of(path).strip(raw)
    stops = np.fromiter(map(len, raw), np.int64, len(raw))
    begins = np.zeros(len(raw), dtype=np.int64)
    np.cumsum(stops[:-1] + 1, out=begins[1:])
    begins += start
    stops += begins
    kept = [i for i, line in enumerate(lines) if line]
    ranges = np.stack([begins[kept], stops[kept]], axis=1)
    return [lines[i] for i in kept], ranges


def _roots(row: int, step: Step, spans: Sequence[EditSpan], gate: Gate) -> tuple[Root, ...]:
    texts = []
    for span in spans:
        if step.response[span.start : span.end] != span.text:
            raise ValueError(f"edit of {span.path!r} is not the text at {span.start}:{span.end} of its response")
        texts.append(normalise(span.text, span.path, span.start))
    changed = _changed(step, spans, [lines for lines, _ in texts], gate)
    return tuple(
        Root(row=row, path=span.path, kind=span.kind, lines=tuple(lines), ranges=ranges, changed=mask)
        for span, (lines, ranges), mask in zip(spans, texts, changed, strict=True)
    )


# ---------------------------------------------------------------- the gate


def _changed(step: Step, spans: Sequence[EditSpan], lines: list[list[str]], gate: Gate) -> list[np.ndarray]:
    masks = [np.ones(len(part), dtype=bool) for part in lines]
    if gate == "none":
        return masks
    before = step.files_before or {}
    for i, span in enumerate(spans):
        if span.kind == "overwrite":
            old = before.get(span.path)
            if old is None:
                continue
            if gate == "payload":
                masks[i][:] = old != span.text
            else:
                masks[i] = ~common_lines(normalise(old, span.path)[0], lines[i])[1]
        elif span.kind == "add" and i and spans[i - 1].kind == "del" and spans[i - 1].path == span.path:
            if gate == "payload":
                same = spans[i - 1].text == span.text
                masks[i - 1][:] = masks[i][:] = not same
            else:
                old_same, new_same = common_lines(lines[i - 1], lines[i])
                masks[i - 1], masks[i] = ~old_same, ~new_same
    return masks


def common_lines(old: Sequence[str], new: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The lines that `old` and `new` share, in order: two bool masks, a longest common subsequence.

    Beyond 4e8 line pairs the two are aligned in pieces, so memory stays bounded; what is then called common still is.
    """
    same_old, same_new = np.zeros(len(old), dtype=bool), np.zeros(len(new), dtype=bool)
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    same_old[:head] = same_new[:head] = True
    same_old[len(old) - tail :] = same_new[len(new) - tail :] = True
    ids: dict[str, int] = {}
    a = [ids.setdefault(line, len(ids)) for line in old[head : len(old) - tail]]
    known = len(ids)
    b = [ids.setdefault(line, len(ids)) for line in new[head : len(new) - tail]]
    if a and b and min(b) < known:
        pieces = -(-len(a) * len(b) // _MAX_CELLS)
        for p in range(pieces):
            a0, a1 = len(a) * p // pieces, len(a) * (p + 1) // pieces
            b0, b1 = len(b) * p // pieces, len(b) * (p + 1) // pieces
            for op in LCSseq.opcodes(a[a0:a1], b[b0:b1]):
                if op.tag == "equal":
                    same_old[head + a0 + op.src_start : head + a0 + op.src_end] = True
                    same_new[head + b0 + op.dest_start : head + b0 + op.dest_end] = True
    return same_old, same_new
