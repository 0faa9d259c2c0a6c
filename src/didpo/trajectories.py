"""Recorded rollouts on disk: one group per line, JSON, versioned; `.gz` by the file's name.

The round trip is exact: token ids, offsets, log-probs, files, edits and test outcomes come back as they were written
(sequences as lists of plain numbers, offsets as pairs, edits as a tuple of EditSpan). Every line names its version, so
that files can be joined with `cat`. A field that this version does not know is refused, never dropped.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.types import EditSpan, Step, StopReason, Trajectory, TrajectoryGroup

VERSION = 1
VERSION_KEY = "didpo_trajectories"


def write_groups(path: str | Path, groups: Iterable[TrajectoryGroup]) -> None:
    """Write the groups to `path`, all or nothing: a reader sees the old file or the whole new one."""
    path = Path(path)
    lines = (json.dumps(_group_out(g), allow_nan=False, separators=(",", ":")) + "\n" for g in groups)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                    packed.writelines(line.encode("ascii") for line in lines)
            else:
                raw.writelines(line.encode("ascii") for line in lines)
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_groups(path: str | Path) -> Iterator[TrajectoryGroup]:
    """The groups of a file that `write_groups` wrote, one at a time.

    Raises UserError, naming file and line, for a broken or cut-off line, another version, or an unknown field.
    """
    for number, row in read_jsonl(path):
        where = f"{path}, line {number}"
        version = row.pop(VERSION_KEY, None)
        if version is None:
            raise UserError(f"{where}: not a didpo trajectory file (no {VERSION_KEY!r}); import other formats first")
        if version != VERSION:
            raise UserError(f"{where}: version {version!r} of the format; this didpo reads version {VERSION}")
        yield _group_in(row, where)


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number (from 1) and object of each line of a JSONL file (`.gz` too); blank lines are passed over."""
    path = Path(path)
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as lines:
            for line in lines:  # bytes: only LF ends a line here
                number += 1
                if line.strip():
                    yield number, parse_object(line, f"{path}, line {number}")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}, after line {number}: the gzip data is damaged or cut off ({error})") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def parse_object(line: bytes | str, where: str) -> dict[str, Any]:
    """The JSON object in `line`. Raises UserError with `where` if it is not one, or holds NaN or an infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON number")

    try:
        value = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON, broken or cut off ({error})") from error
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


# ---------------------------------------------------------------- writing


def _plain(record: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a record that differ from their defaults, in the order of the class."""
    row = {}
    for f in fields(record):
        value = getattr(record, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if f.name not in skip and (f.default is None or default is MISSING or value != default) and value is not None:
            row[f.name] = value
    return row


def _group_out(group: TrajectoryGroup) -> dict[str, Any]:
    row = {VERSION_KEY: VERSION, **_plain(group, skip=("trajectories",))}
    return {**row, "trajectories": [_trajectory_out(t) for t in group.trajectories]}


def _trajectory_out(trajectory: Trajectory) -> dict[str, Any]:
    return {**_plain(trajectory, skip=("steps",)), "steps": [_step_out(s) for s in trajectory.steps]}


def _step_out(step: Step) -> dict[str, Any]:
    sequences = ("token_offsets", "edits", "prompt_ids", "response_ids", "rollout_logprobs")
    row = _plain(step, skip=(*sequences, "reward", "step_score"))
    for name in ("reward", "step_score"):
        if (number := getattr(step, name)) is not None:
            row[name] = float(number)
    for name in ("files_before", "files_after", "test_outcomes"):
        if name in row:
            row[name] = dict(row[name])
    if step.token_offsets is not None:
        row["token_offsets"] = [[int(a), int(b)] for a, b in step.token_offsets]
    if step.edits is not None:
        row["edits"] = [_plain(e) for e in step.edits]
    for name in ("prompt_ids", "response_ids"):
        if (ids := getattr(step, name)) is not None:
            row[name] = [int(i) for i in ids]
    if step.rollout_logprobs is not None:
        row["rollout_logprobs"] = [float(x) for x in step.rollout_logprobs]
    return row


# ---------------------------------------------------------------- reading: a check and a conversion per field

Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _map_to(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_int, value)) and 0 <= value[0] <= value[1]


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _one_of(*names: str) -> Check:
    return lambda value: value in names


_EDIT: dict[str, tuple[Check, str]] = {
    "path": (_is_text, "a text"),
    "kind": (_one_of("add", "del", "overwrite"), "add, del or overwrite"),
    "text": (_is_text, "a text"),
    "start": (_is_int, "an integer"),
    "end": (_is_int, "an integer"),
    "line": (_is_int, "an integer"),
}
_STEP: dict[str, tuple[Check, str]] = {
    "response": (_is_text, "a text"),
    "reward": (_is_number, "a number"),
    "files_before": (_map_to(_is_text), "an object of texts"),
    "files_after": (_map_to(_is_text), "an object of texts"),
    "token_offsets": (_list_of(_is_pair), "a list of [start, end] pairs"),
    "step_score": (_is_number, "a number"),
    "test_outcomes": (_map_to(_is_bool), "an object of true and false"),
    "edits": (lambda v: isinstance(v, list), "a list"),
    "prompt": (_is_text, "a text"),
    "observation": (_is_text, "a text"),
    "action": (_is_text, "a text"),
    "prompt_ids": (_list_of(_is_int), "a list of integers"),
    "response_ids": (_list_of(_is_int), "a list of integers"),
    "rollout_logprobs": (_list_of(_is_number), "a list of numbers"),
    "finish_reason": (_one_of("stop", "length"), "stop or length"),
}
_TRAJECTORY: dict[str, tuple[Check, str]] = {
    "steps": (lambda v: isinstance(v, list), "a list"),
    "outcome": (_is_number, "a number"),
    "stop_reason": (_one_of(*StopReason), f"one of {', '.join(StopReason)}"),
    "error": (_is_text, "a text"),
    "trajectory_id": (_is_text, "a text"),
    "seed": (_is_int, "an integer"),
    "meta": (lambda v: isinstance(v, dict), "an object"),
}
_GROUP: dict[str, tuple[Check, str]] = {
    "task_id": (_is_text, "a text"),
    "trajectories": (lambda v: isinstance(v, list), "a list"),
    "group_id": (_is_text, "a text"),
}


def _checked(row: Any, table: Mapping[str, tuple[Check, str]], required: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object, found {type(row).__name__}")
    for name, value in row.items():
        if name not in table:
            raise UserError(f"{where}: unknown field {name!r}; this version knows {', '.join(table)}")
        check, wanted = table[name]
        if value is not None and not check(value):
            raise UserError(f"{where}: field {name!r} must be {wanted}")
    for name in required:
        if row.get(name) is None:
            raise UserError(f"{where}: field {name!r} is missing")
    return {name: value for name, value in row.items() if value is not None}


def _group_in(row: dict[str, Any], where: str) -> TrajectoryGroup:
    row = _checked(row, _GROUP, ("task_id", "trajectories"), where)
    trajectories = [
        _trajectory_in(t, f"{where}, trajectory {i} of task {row['task_id']!r}")
        for i, t in enumerate(row.pop("trajectories"))
    ]
    return TrajectoryGroup(**row, trajectories=trajectories)


def _trajectory_in(row: Any, where: str) -> Trajectory:
    row = _checked(row, _TRAJECTORY, ("steps",), where)
    row["stop_reason"] = StopReason(row.get("stop_reason", StopReason.FINISHED))
    row["steps"] = [_step_in(s, f"{where}, step {i}") for i, s in enumerate(row["steps"])]
    return Trajectory(**row)


def _step_in(row: Any, where: str) -> Step:
    row = _checked(row, _STEP, ("response",), where)
    if "token_offsets" in row:
        row["token_offsets"] = [(a, b) for a, b in row["token_offsets"]]
        if any(b > len(row["response"]) for _, b in row["token_offsets"]):
            raise UserError(f"{where}: a token offset lies beyond the end of the response")
    lengths = {n: len(row[n]) for n in ("token_offsets", "response_ids", "rollout_logprobs") if n in row}
    if len(set(lengths.values())) > 1:
        raise UserError(f"{where}: token lists of unequal length: {', '.join(f'{n} {k}' for n, k in lengths.items())}")
    if "edits" in row:
        row["edits"] = tuple(_edit_in(e, row["response"], f"{where}, edit {i}") for i, e in enumerate(row["edits"]))
    return Step(**row)


def _edit_in(row: Any, response: str, where: str) -> EditSpan:
    span = EditSpan(**_checked(row, _EDIT, ("path", "kind", "text", "start", "end"), where))
    if span.start < 0 or response[span.start : span.end] != span.text:
        raise UserError(f"{where}: the text is not what stands at {span.start}:{span.end} of the response")
    return span
