"""Units of local credit: the fragments of edits that rows have in common, and with whom they are compared.

A unit is an anchor (a sub-diff at any scale), the content of a region, or a whole diff.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import Indel

from didpo.credit.anchors import FoundAnchor, find_anchors, groupability
from didpo.credit.diffs import Root, Row
from didpo.credit.matching import Embed
from didpo.credit.places import Places
from didpo.credit.settings import DiDPOSettings
from didpo.credit.structure import structural_anchors

BLOCK_LINES = 8  # an anchor of at least so many lines is a block, below it a fragment (the authors' analysis scripts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A unit in one row: `root` indexes the row's roots, `lines` the normalised lines of it that belong."""

    row: int
    root: int
    lines: np.ndarray  # int64 [n]


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """One fragment. `members` may hold several roots of a row; `rows` and `alternatives` are ascending row numbers."""

    kind: str
    edit_kind: str
    lines: tuple[str, ...]
    length: float
    groupability: float
    members: tuple[Member, ...]
    rows: tuple[int, ...]
    alternatives: tuple[int, ...]
    label: str = ""


def anchor_units(rows: Sequence[Row], places: Places, cfg: DiDPOSettings, embed: Embed | None) -> list[Unit]:
    """Sub-diffs of all scales; alternatives are the rows that changed one of the same regions without the anchor."""
    anchors = find_anchors(
        rows,
        eta=cfg.eta,
        equality=cfg.equality,
        form=cfg.form,
        combine=cfg.combine,
        s0=cfg.s0,
        g0=cfg.g0,
        max_anchors=cfg.max_anchors,
        embed=embed,
    )
    if not anchors and cfg.fallback == "structure":
        anchors = structural_anchors(rows, eta=cfg.eta, worth=lambda length, n: gs(length, n, cfg))
    edited = _edited_keys(rows, places)
    n_editing = sum(any(root.changed.any() for root in row.roots) for row in rows)
    return [_from_anchor(a, rows, places, edited, n_editing) for a in anchors]


def _from_anchor(
    anchor: FoundAnchor, rows: Sequence[Row], places: Places, edited: dict[object, set[int]], n_editing: int
) -> Unit:
    members = tuple(Member(row=o.row, root=o.root, lines=np.arange(o.start, o.stop)) for o in anchor.occurrences)
    inside = {m.row for m in members}
    return Unit(
        kind=_kind(anchor.lines, len(inside) == n_editing),
        edit_kind=anchor.kind,
        lines=anchor.lines,
        length=anchor.length,
        groupability=anchor.groupability,
        members=members,
        rows=tuple(sorted(inside)),
        alternatives=_alternatives(members, rows, places, edited),
        label=_label(members, places),
    )


def _alternatives(
    members: Sequence[Member], rows: Sequence[Row], places: Places, edited: dict[object, set[int]]
) -> tuple[int, ...]:
    keys: set[object] = set()
    for m in members:
        keys |= _keys(rows[m.row].roots[m.root], places.lines[m.row][m.root], m.lines)
    others = set().union(*(edited.get(key, set()) for key in keys)) - {m.row for m in members}
    return tuple(sorted(others))


def _keys(root: Root, regions: np.ndarray, lines: np.ndarray) -> set[object]:
    """The regions of some lines of a root; where they are not known, the file as a whole."""
    return {root.path if r < 0 else r for r in np.unique(regions[lines]).tolist()}


def _edited_keys(rows: Sequence[Row], places: Places) -> dict[object, set[int]]:
    edited: dict[object, set[int]] = {}
    for i, row in enumerate(rows):
        for k, root in enumerate(row.roots):
            for key in _keys(root, places.lines[i][k], np.flatnonzero(root.changed)):
                edited.setdefault(key, set()).add(i)
    return edited


def _label(members: Sequence[Member], places: Places) -> str:
    """The region in which the first member begins."""
    first = members[0]
    region = int(places.lines[first.row][first.root][first.lines[0]])
    return region_label(places.names[region]) if region >= 0 else ""


def region_label(name: tuple[str, str]) -> str:
    return f"{name[0]}::{name[1] or '(top level)'}"


def _kind(lines: tuple[str, ...], in_all: bool) -> str:
    if in_all:
        return "boilerplate"
    first = lines[0].lstrip() if lines else ""
    if first.startswith(("def ", "async def ", "class ", "@")) and len(lines) > 1:
        return "function"
    return "block" if len(lines) >= BLOCK_LINES else "fragment"


def diff_units(rows: Sequence[Row], places: Places, cfg: DiDPOSettings) -> list[Unit]:
    """Whole diffs: roots whose lines match as a whole, at most one per row; the paper's ablation of the unit.

    "similar" joins a root to the first representative (in the order of their texts) that is at least eta similar.
    """
    by_lines: dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]] = {}
    for i, row in enumerate(rows):
        for k, root in enumerate(row.roots):
            if root.changed.any():
                by_lines.setdefault((root.kind, root.lines), []).append((i, k))
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]] = {}
    for key in sorted(by_lines):
        groups.setdefault(_representative(key, groups, cfg), []).extend(by_lines[key])
    edited = _edited_keys(rows, places)
    n_editing = sum(any(root.changed.any() for root in row.roots) for row in rows)
    units = []
    for (kind, lines), found in groups.items():
        first = dict(sorted(found, reverse=True))  # the first root of each row
        if len(first) < 2:
            continue
        members = tuple(
            Member(row=i, root=first[i], lines=np.flatnonzero(rows[i].roots[first[i]].changed)) for i in sorted(first)
        )
        length = sum(len(rows[i].roots[k].lines) for i, k in first.items()) / len(first)
        units.append(
            Unit(
                kind=_kind(lines, len(first) == n_editing),
                edit_kind=kind,
                lines=lines,
                length=length,
                groupability=gs(length, len(first), cfg),
                members=members,
                rows=tuple(sorted(first)),
                alternatives=_alternatives(members, rows, places, edited),
                label=_label(members, places),
            )
        )
    return units


def _representative(
    key: tuple[str, tuple[str, ...]],
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]],
    cfg: DiDPOSettings,
) -> tuple[str, tuple[str, ...]]:
    if cfg.equality != "similar":
        return key
    text = "\n".join(key[1])
    for known in groups:
        if known[0] == key[0] and Indel.normalized_similarity("\n".join(known[1]), text) >= cfg.eta - 1e-9:
            return known
    return key


def region_units(rows: Sequence[Row], places: Places, cfg: DiDPOSettings) -> list[Unit]:
    """Whole regions: the rows that changed a region to the same content, against those that changed it otherwise."""
    edited = places.edited(rows)
    units = []
    for r, name in enumerate(places.names):
        content = places.content[r]
        groups: dict[int, list[int]] = {}
        for i in edited[r]:
            if content[i] >= 0:
                groups.setdefault(int(content[i]), []).append(i)
        for number in sorted(groups):
            inside = groups[number]
            members = tuple(m for i in inside for m in region_members(i, rows[i], places, r))
            length = sum(len(m.lines) for m in members) / len(inside)
            units.append(
                Unit(
                    kind="region",
                    edit_kind=rows[members[0].row].roots[members[0].root].kind,
                    lines=lines_of(members[0], rows),
                    length=length,
                    groupability=gs(length, len(inside), cfg),
                    members=members,
                    rows=tuple(inside),
                    alternatives=tuple(i for i in edited[r] if content[i] != number),
                    label=region_label(name),
                )
            )
    return units


def region_members(i: int, row: Row, places: Places, region: int) -> list[Member]:
    """The changed lines of row `i` that lie in a region, root by root."""
    out = []
    for k, root in enumerate(row.roots):
        lines = np.flatnonzero(root.changed & (places.lines[i][k] == region))
        if len(lines):
            out.append(Member(row=i, root=k, lines=lines))
    return out


def lines_of(member: Member, rows: Sequence[Row]) -> tuple[str, ...]:
    lines = rows[member.row].roots[member.root].lines
    return tuple(lines[i] for i in member.lines.tolist())


def gs(length: float, n_rows: int, cfg: DiDPOSettings) -> float:
    """Groupability by the settings."""
    return float(groupability(length, n_rows, form=cfg.form, combine=cfg.combine, s0=cfg.s0, g0=cfg.g0))
