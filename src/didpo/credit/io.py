"""A `GroupCredit` as one line of JSON and back, exactly.

float32 values are written as the shortest decimal that gives the same float32 back; equal runs (an episode advantage on
all tokens of a step) are written once with their length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from didpo.errors import UserError
from didpo.types import Anchor, AnchorMember, GroupCredit

VERSION = 1


def encode_array(values: np.ndarray) -> list[Any]:
    """float32 [T] -> [[value, run length], ...] as plain numbers. `UserError` where a value is not finite."""
    values = np.asarray(values, dtype=np.float32)
    if len(values) == 0:
        return []
    if not np.isfinite(values).all():
        raise UserError("an advantage is not a finite number: it cannot be saved")
    bits = values.view(np.uint32)  # bits, so that -0.0 and 0.0 stay apart
    starts = np.flatnonzero(np.r_[True, bits[1:] != bits[:-1]])
    lengths = np.diff(np.r_[starts, len(values)]).tolist()
    return [[float(str(values[i])), n] for i, n in zip(starts.tolist(), lengths, strict=True)]


def decode_array(runs: list[Any]) -> np.ndarray:
    """The inverse of `encode_array`."""
    if not runs:
        return np.zeros(0, dtype=np.float32)
    values = np.array([value for value, _ in runs], dtype=np.float64).astype(np.float32)
    return np.repeat(values, [n for _, n in runs])


def to_json(credit: GroupCredit) -> dict[str, Any]:
    """Plain values for `json.dumps`; metrics must be finite."""
    for name, value in credit.metrics.items():
        if not math.isfinite(value):
            raise UserError(f"metric {name!r} is {value}: it cannot be saved")
    return {
        "version": VERSION,
        "algorithm": credit.algorithm,
        "assigned": [bool(a) for a in credit.assigned],
        "advantages": _encode(credit.advantages),
        "parts": {name: _encode(arrays) for name, arrays in credit.parts.items()},
        "anchors": [asdict(anchor) for anchor in credit.anchors],
        "metrics": {name: float(value) for name, value in credit.metrics.items()},
        "notes": list(credit.notes),
    }


def from_json(data: dict[str, Any]) -> GroupCredit:
    """The inverse of `to_json`. `UserError` for another version or a missing field."""
    if data.get("version") != VERSION:
        raise UserError(f"credit of version {data.get('version')!r}; this program reads version {VERSION}")
    missing = {"algorithm", "assigned", "advantages", "parts", "anchors", "metrics", "notes"} - data.keys()
    if missing:
        raise UserError(f"the credit record lacks {', '.join(sorted(missing))}")
    return GroupCredit(
        algorithm=data["algorithm"],
        advantages=_decode(data["advantages"]),
        parts={name: _decode(arrays) for name, arrays in data["parts"].items()},
        assigned=list(data["assigned"]),
        anchors=[_anchor(a) for a in data["anchors"]],
        metrics=dict(data["metrics"]),
        notes=list(data["notes"]),
    )


def dumps(credit: GroupCredit) -> str:
    return json.dumps(to_json(credit), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def loads(line: str) -> GroupCredit:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"not a line of credit JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError("not a line of credit JSON: expected an object")
    return from_json(data)


def write_credit(path: str | Path, credits: Iterable[GroupCredit]) -> None:
    """One credit per line, in a file that appears whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(dumps(credit) + "\n" for credit in credits)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def read_credit(path: str | Path) -> Iterator[GroupCredit]:
    """The credits of a file, in order. `UserError` names the line that is damaged."""
    if not Path(path).is_file():
        raise UserError(f"no credit file {path}")
    with Path(path).open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield loads(line)
            except UserError as error:
                raise UserError(f"{path}, line {number}: {error}") from None


def _encode(arrays: list[list[np.ndarray]]) -> list[list[list[Any]]]:
    return [[encode_array(a) for a in row] for row in arrays]


def _decode(arrays: list[list[list[Any]]]) -> list[list[np.ndarray]]:
    return [[decode_array(a) for a in row] for row in arrays]


def _anchor(data: dict[str, Any]) -> Anchor:
    members = tuple(
        AnchorMember(**{**member, "spans": tuple((a, b) for a, b in member["spans"])}) for member in data["members"]
    )
    return Anchor(**{**data, "lines": tuple(data["lines"]), "members": members})
