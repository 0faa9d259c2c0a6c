"""The run directory: one folder per run, written so that a kill at any moment leaves nothing half-written.

    config.toml                    resolved settings
    metrics.jsonl                  one JSON object per line: {"phase", "step", "seconds", ...numbers}
    trajectories/step_00010.jsonl  groups of some steps
    credit/step_00010.jsonl        the credit of the same groups
    tracking/step_00010.jsonl      groups of the tracking tasks over training; tracking/credit/ holds their credit
    checkpoints/step_00010/        see `didpo.checkpoint`
    eval/before.jsonl, after.jsonl, summary.json, report.html

Whole files are written beside their place, synced and renamed; metrics are appended line by line, and a last line that
a kill cut off is dropped on resume.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from didpo.errors import UserError

if TYPE_CHECKING:
    from didpo.settings import RunSettings


ENTRIES = {  # all that a run writes into its folder
    *("config.toml", "metrics.jsonl", "summary.json", "report.html"),
    *("trajectories", "credit", "tracking", "checkpoints", "eval", "model"),
}


class RunDir:
    """Paths of one run, and the only ways to write into it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.summary = self.path / "summary.json"
        self.report = self.path / "report.html"
        self.checkpoints = self.path / "checkpoints"
        self.final_model = self.path / "model"

    @property
    def holds_run(self) -> bool:
        """True where a run has been started here."""
        return self.config.is_file()

    def foreign(self) -> str:
        """Something in the folder that a run does not write, or a config.toml that is not a run's; "" where all is."""
        from didpo.config import read_toml

        for entry in sorted(self.path.iterdir()):
            if entry.name not in ENTRIES and not (
                entry.name.startswith(".") and entry.name.endswith((".tmp", ".partial"))
            ):
                return entry.name
        if self.holds_run and not {"preset", "algorithm", "seed"} <= read_toml(self.config).keys():
            return "a config.toml of something else"
        return ""

    def step_file(self, kind: str, step: int) -> Path:
        """kind: "trajectories", "credit", "tracking" or "tracking/credit"."""
        return self.path / kind / f"step_{step:05d}.jsonl"

    def eval_file(self, name: str) -> Path:
        return self.path / "eval" / f"{name}.jsonl"

    def read_summary(self) -> dict[str, Any]:
        return json.loads(self.summary.read_text(encoding="utf-8"))

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one row to metrics.jsonl. Numbers that are not finite become null: JSON has no NaN."""
        append_line(self.metrics, json.dumps(_finite(row)))

    def rows(self, phase: str | None = None) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl, all or those of one phase; a cut-off last line is left out."""
        rows = read_jsonl(self.metrics) if self.metrics.exists() else []
        return rows if phase is None else [row for row in rows if row.get("phase") == phase]

    def rewind(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Rewrite metrics.jsonl with the rows that satisfy `keep`, so that resumed steps are not logged twice."""
        rows = [row for row in self.rows() if keep(row)]
        write_atomic(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))


def prepare(path: str | Path, settings: RunSettings, *, overwrite: bool = False, resume: bool = False) -> RunDir:
    """Make the folder of a run and save its settings; or check that a run to resume is there and has these settings.

    Raises UserError where the folder holds anything that is not to be lost, or a run with other settings.
    """
    from didpo.config import read_toml, to_dict, to_toml

    run_dir = RunDir(path)
    if resume:
        if not run_dir.holds_run:
            raise UserError(f"{path} holds no run to resume (no config.toml); leave out --resume to start one")
        stored = read_toml(run_dir.config)
        if changed := _differences(stored, to_dict(settings)):
            raise UserError(
                f"the run in {path} was started with other settings ({changed}); resume with those, or choose "
                "another run directory"
            )
        return run_dir
    if run_dir.path.exists():
        if not run_dir.path.is_dir():
            raise UserError(f"{path} is a file; choose another run directory with --run-dir")
        if not run_dir.holds_run and any(run_dir.path.iterdir()):
            raise UserError(f"{path} holds other files and no run; choose another run directory with --run-dir")
        if run_dir.holds_run and not overwrite:
            raise UserError(f"{path} already holds a run; continue it with --resume or replace it with --overwrite")
        if foreign := run_dir.foreign():
            raise UserError(f"{path} holds what no run wrote ({foreign}); move it away before --overwrite")
        shutil.rmtree(run_dir.path)
    run_dir.path.mkdir(parents=True)
    write_atomic(run_dir.config, to_toml(settings))
    return run_dir


def _differences(stored: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> str:
    """Dotted names of settings that differ, with both values."""
    found = []
    for name in [*now, *(name for name in stored if name not in now)]:
        old, new = stored.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if text := _differences(old, new, f"{where}{name}."):
                found.append(text)
        elif old != new:
            found.append(f"{where}{name}: {old!r}, now {new!r}")
    return "; ".join(found)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file: readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make a file's content, or the renames in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(_finite(value), indent=2) + "\n")


def append_line(path: Path, line: str) -> None:
    """Append one line in one write call."""
    assert "\n" not in line
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSONL file that is appended to. A last line without its line end was cut off by a kill: left out.

    Raises UserError for any other line that is not JSON.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    rows = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise UserError(f"{path} line {number} is not JSON ({error.msg}); mend or remove that line") from error
    return rows


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a whole JSONL file at once."""
    write_atomic(path, "".join(json.dumps(_finite(row)) + "\n" for row in rows))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
