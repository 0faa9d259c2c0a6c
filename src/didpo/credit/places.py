"""Where the edits of a group stand in their files: the region of each line that was written or searched.

Lines that a step writes lie in regions of the file after it, lines that it takes away in regions of the file before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from didpo.actions import edit_spans, files_after
from didpo.credit.diffs import Root, Row
from didpo.credit.regions import (
    FileRegions,
    block_regions,
    content_ids,
    file_regions,
    is_python,
    raw_lines,
    region_texts,
)
from didpo.errors import UserError
from didpo.types import EditSpan, Files, Step, TrajectoryGroup


def resolved(group: TrajectoryGroup) -> TrajectoryGroup:
    """The group with `edits` and `files_after` filled in, so that no response is parsed again. Inputs stay.

    `UserError` for a recorded edit that is not the text at its own place of the response.
    """
    out = []
    for g, trajectory in enumerate(group.trajectories):
        steps = trajectory.steps
        if not trajectory.failed:
            steps = [_resolved_step(step, g, s) for s, step in enumerate(steps)]
        out.append(replace(trajectory, steps=steps))
    return replace(group, trajectories=out)


def _resolved_step(step: Step, g: int, s: int) -> Step:
    spans = edit_spans(step)
    for span in spans:
        if step.response[span.start : span.end] != span.text:
            raise UserError(
                f"trajectory {g}, step {s}: the edit of {span.path!r} is not the text at {span.start}:{span.end} of its"
                " response; record the edits with their places in the raw response"
            )
    if step.edits is not None and step.files_after is not None:
        return step
    after: Files | None = step.files_after if step.files_after is not None else files_after(step)
    if after is None:  # an overwrite tells the whole file even where nothing else is recorded
        after = {span.path: span.text for span in spans if span.kind == "overwrite"} or None
    return replace(step, edits=spans, files_after=after)


@dataclass(kw_only=True, eq=False)
class Places:
    """Regions of a group's edits. R regions that at least one row changed; N rows, as `rows_of` lists them.

    lines[i][k]: int64 [n], the region of each normalised line of root k of row i; -1 where it is not known.
    content: int64 [R, N], equal numbers for equal contents of a region in the file after the row; -1 where absent.
    """

    names: list[tuple[str, str]]  # [R] path and name, sorted
    lines: list[list[np.ndarray]]
    content: np.ndarray

    def edited(self, rows: Sequence[Row]) -> list[list[int]]:
        """The rows that changed each region. [R] lists, ascending"""
        out: list[list[int]] = [[] for _ in self.names]
        for i, row in enumerate(rows):
            touched = {r for k, root in enumerate(row.roots) for r in self.lines[i][k][root.changed].tolist()}
            for r in touched - {-1}:
                out[r].append(i)
        return out


def places_of(group: TrajectoryGroup, rows: Sequence[Row]) -> Places:
    """Places of the edits of a `resolved` group; `rows` are its `rows_of`."""
    steps = [group.trajectories[row.trajectory].steps[row.step] for row in rows]
    raw = [_raw_lines(step, row) if row.roots else [] for step, row in zip(steps, rows, strict=True)]
    found: list[list[np.ndarray]] = [[np.full(len(r.lines), -1, dtype=np.int64) for r in row.roots] for row in rows]
    names: list[tuple[str, str]] = []
    contents: list[np.ndarray] = []
    valid = [not group.trajectories[row.trajectory].failed for row in rows]
    roots: dict[str, list[tuple[int, int, Root]]] = {}
    for i, row in enumerate(rows):
        for k, root in enumerate(row.roots):
            roots.setdefault(root.path, []).append((i, k, root))
    for path in sorted(p for p, here in roots.items() if any(root.changed.any() for _, _, root in here)):
        file = _FileVersions(path, steps, valid)
        local = {name: n for n, name in enumerate(sorted({n for f in file.regions for n in f.names}))}
        by_line = [np.array([local[n] for n in f.names], dtype=np.int64)[f.line_region] for f in file.regions]
        changed: set[int] = set()
        for i, k, root in roots[path]:
            version = (file.before if root.kind == "del" else file.after)[i]
            if version >= 0:
                in_file, at = by_line[version], raw[i][k]
                found[i][k] = np.where(at >= 0, in_file[np.minimum(at, len(in_file) - 1)], -1)
                changed.update(found[i][k][root.changed].tolist())
        changed.discard(-1)
        kept = sorted(changed)
        to_global = np.full(len(local) + 1, -1, dtype=np.int64)
        to_global[kept] = np.arange(len(kept)) + len(names)
        for i, k, _ in roots[path]:
            found[i][k] = to_global[found[i][k]]
        names += [(path, name) for name in sorted(local) if local[name] in changed]
        contents += file.contents([name for name in sorted(local) if local[name] in changed])
    content = np.array(contents, dtype=np.int64).reshape(len(names), len(rows))
    return Places(names=names, lines=found, content=content)


class _FileVersions:
    """All versions of one file in a group: distinct texts, which row sees which, and their regions."""

    def __init__(self, path: str, steps: Sequence[Step], valid: Sequence[bool]) -> None:
        self.path = path
        ids: dict[str, int] = {}

        def version(files: Files | None, ok: bool) -> int:
            text = files.get(path) if files is not None and ok else None
            return -1 if text is None else ids.setdefault(text, len(ids))

        self.after = [version(s.files_after, ok) for s, ok in zip(steps, valid, strict=True)]
        deletes = [any(e.kind == "del" and e.path == path for e in s.edits or ()) for s in steps]
        self.before = [version(s.files_before, ok and d) for s, ok, d in zip(steps, valid, deletes, strict=True)]
        self.texts = list(ids)
        self.regions = self._split()

    def _split(self) -> list[FileRegions]:
        if is_python(self.path):
            regions = [file_regions(text) for text in self.texts]
            if any(r.split for r in regions):
                return regions
        return block_regions(self.texts, self.path)

    def contents(self, names: list[str]) -> list[np.ndarray]:
        """Content number per row, int64 [N], for each named region; -1 where the file after a row lacks it."""
        after = np.array(self.after, dtype=np.int64)
        used = sorted(set(self.after) - {-1})
        of_name: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
        for v in used:
            here = [(r, name) for r, name in enumerate(self.regions[v].names) if name in of_name]
            texts = region_texts(self.texts[v], self.regions[v], [r for r, _ in here]) if here else []
            for (_, name), text in zip(here, texts, strict=True):
                of_name[name].append((v, text))
        out = []
        for name in names:
            by_version = np.full(len(self.texts) + 1, -1, dtype=np.int64)  # the last entry serves version -1
            if of_name[name]:
                by_version[[v for v, _ in of_name[name]]] = content_ids([t for _, t in of_name[name]], self.path)
            out.append(by_version[after])
        return out


def _raw_lines(step: Step, row: Row) -> list[np.ndarray]:
    """For each root the lines of its file (after the step; before it for "del") at which its lines stand, int64 [n].

    A span says where it stands in the file as the edits before it in the same response left it; what comes earlier or
    later in the response moves lines up or down. -1 where the whole file was written over in between.
    """
    spans = list(step.edits or ())
    out = []
    for k, (span, root) in enumerate(zip(spans, row.roots, strict=True)):
        lines = raw_lines(span.text, root.ranges[:, 0] - span.start) + (0 if span.kind == "overwrite" else span.line)
        others = spans[:k][::-1] if span.kind == "del" else spans[k + 1 :]
        for other in others:
            if other.path != span.path:
                continue
            if other.kind == "overwrite":
                lines = np.full(len(lines), -1, dtype=np.int64)
                break
            removed, added = _moved(spans, other)
            if span.kind == "del":  # back to the file before the step
                inside = (lines >= other.line) & (lines < other.line + added)
                lines = np.where(lines >= other.line + added, lines + removed - added, lines)
                lines = np.where(inside, other.line, lines)
            else:  # on to the file after it
                inside = (lines >= other.line) & (lines < other.line + removed)
                lines = np.where(lines >= other.line + removed, lines - removed + added, lines)
                lines = np.where(inside, other.line, lines)
        out.append(lines)
    return out


def _moved(spans: list[EditSpan], span: EditSpan) -> tuple[int, int]:
    """How many lines a span takes away and puts in. Inserted text always ends its last line."""
    count = span.text.count("\n")
    if span.kind == "del":
        return count, 0
    at = next(i for i, s in enumerate(spans) if s is span)
    replaces = at > 0 and spans[at - 1].kind == "del" and spans[at - 1].path == span.path
    return 0, count if replaces or span.text.endswith("\n") else count + 1
