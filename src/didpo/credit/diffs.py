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
from typing import Literal, get_args

import numpy as np
from rapidfuzz.distance import LCSseq

from didpo.actions import edit_spans
from didpo.credit.comments import Syntax, syntax_of
from didpo.errors import unknown_name
from didpo.types import EditSpan, Step, TrajectoryGroup

Gate = Literal["lines", "payload", "none"]

_Known = dict[tuple[Syntax, str], tuple[list[str], np.ndarray]]

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
    if gate not in get_args(Gate):
        raise unknown_name("gate", gate, get_args(Gate))
    rows: list[Row] = []
    known: _Known = {}
    for g, trajectory in enumerate(group.trajectories):
        for s, step in enumerate(trajectory.steps):
            spans = () if trajectory.failed else tuple(edit_spans(step))
            rows.append(Row(trajectory=g, step=s, roots=_roots(len(rows), step, spans, gate, known) if spans else ()))
    return rows


def normalise(text: str, path: str) -> tuple[list[str], np.ndarray]:
    """Normalised lines of `text` and their raw character ranges in it, int64 [n, 2], line ends left out."""
    raw = text.split("\n")
    lines = syntax_of(path).strip(raw)
    ranges = np.empty((len(raw), 2), dtype=np.int64)
    ranges[:, 1] = np.fromiter(map(len, raw), np.int64, len(raw))
    np.cumsum(ranges[:, 1] + 1, out=ranges[:, 1])
    ranges[0, 0] = 0
    ranges[1:, 0] = ranges[:-1, 1]
    ranges[:, 1] -= 1
    if "" in lines:
        kept = [i for i, line in enumerate(lines) if line]
        return [lines[i] for i in kept], ranges[kept]
    return lines, ranges


def _normalised(text: str, path: str, known: _Known) -> tuple[list[str], np.ndarray]:
    """`normalise`, remembered: what one step writes is the next one's file before."""
    key = (syntax_of(path), text)
    found = known.get(key)
    if found is None:
        found = known[key] = normalise(text, path)
    return found


def _roots(row: int, step: Step, spans: Sequence[EditSpan], gate: Gate, known: _Known) -> tuple[Root, ...]:
    for span in spans:
        if step.response[span.start : span.end] != span.text:
            raise ValueError(f"edit of {span.path!r} is not the text at {span.start}:{span.end} of its response")
    texts = [_normalised(span.text, span.path, known) for span in spans]
    changed = _changed(step, spans, [lines for lines, _ in texts], gate, known)
    return tuple(
        Root(
            row=row,
            path=span.path,
            kind=span.kind,
            lines=tuple(lines),
            ranges=ranges + span.start,
            changed=mask,
        )
        for span, (lines, ranges), mask in zip(spans, texts, changed, strict=True)
    )


# ---------------------------------------------------------------- the gate


def _changed(
    step: Step, spans: Sequence[EditSpan], lines: list[list[str]], gate: Gate, known: _Known
) -> list[np.ndarray]:
    masks = [np.ones(len(part), dtype=bool) for part in lines]
    if gate == "none":
        return masks
    before = step.files_before or {}
    after = step.files_after or {}
    for i, span in enumerate(spans):
        old = before.get(span.path)
        replaces = i > 0 and span.kind == "add" and spans[i - 1].kind == "del" and spans[i - 1].path == span.path
        if gate == "payload":
            if span.kind == "overwrite" and old is not None:
                masks[i][:] = old != span.text
            elif replaces:
                masks[i - 1][:] = masks[i][:] = spans[i - 1].text != span.text
        elif old is not None and after.get(span.path) == old:
            masks[i][:] = False  # whatever was done to the file was undone in the same response
        elif span.kind == "overwrite" and old is not None:
            masks[i] = ~common_lines(_normalised(old, span.path, known)[0], lines[i])[1]
        elif replaces:
            same = _common_of_pair(lines[i - 1], lines[i], _ends(spans[i - 1].text, span.text, old))
            masks[i - 1], masks[i] = ~same[0], ~same[1]
    return masks


def _ends(search: str, replace: str, old: str | None) -> tuple[str, str]:
    """What stands before and after the search text on its first and last line; "" where that cannot be told."""
    at = old.find(search) if old is not None and search else -1
    if old is None or at < 0:
        return "", ""
    stop = at + len(search)
    prefix = old[old.rfind("\n", 0, at) + 1 : at]
    suffix = "" if search.endswith("\n") and replace.endswith("\n") else old[stop:].split("\n", 1)[0]
    return prefix, suffix.rstrip(" \t\r")


def _common_of_pair(old: list[str], new: list[str], ends: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """`common_lines` of a search text and its replacement as whole lines of the file, completed at both ends."""
    prefix, suffix = ends
    if old and new and (prefix or suffix):
        old, new = list(old), list(new)
        for part in (old, new):
            part[0] = prefix + part[0]
            part[-1] += suffix
    return common_lines(old, new)


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
