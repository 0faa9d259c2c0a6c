"""What all importers share: the report of an import, rendered tool calls, and paths relative to the workspace."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.types import EditSpan, Trajectory, TrajectoryGroup


@dataclass(kw_only=True)
class ImportReport:
    """What an import found, and what it could not use.

    An edit counts as recognised when its text is known as spans of the response; as refused when the recorded
    environment did not apply it; as unrecognised, with the reason, when it changed a file in a way not followed here.
    """

    formats: Counter[str] = field(default_factory=Counter)  # format -> files
    groups: int = 0
    trajectories: int = 0
    steps: int = 0
    recognised: Counter[str] = field(default_factory=Counter)  # way of editing -> number of edits
    refused: int = 0
    unrecognised: Counter[str] = field(default_factory=Counter)  # reason -> number of edits
    notes: list[str] = field(default_factory=list)

    @property
    def edits(self) -> int:
        return self.recognised.total()

    def lines(self) -> list[str]:
        """The report in plain words, one fact per line."""
        formats = ", ".join(f"{n} x {name}" for name, n in sorted(self.formats.items()))
        ways = ", ".join(f"{n} by {way}" for way, n in self.recognised.most_common())
        lines = [
            f"imported {formats}: {self.groups} groups, {self.trajectories} rollouts, {self.steps} steps",
            f"{self.edits} edits recognised" + (f" ({ways})" if ways else ""),
        ]
        if self.refused:
            lines.append(f"{self.refused} edits that the environment refused: they earn no local credit")
        lines += [f"{n} edits not recognised: {reason}" for reason, n in self.unrecognised.most_common()]
        return lines + self.notes


@dataclass(kw_only=True)
class Found:
    """The edits found in one response: accepted spans, and counts for the report."""

    spans: list[EditSpan] = field(default_factory=list)
    ways: Counter[str] = field(default_factory=Counter)
    unrecognised: Counter[str] = field(default_factory=Counter)

    def add(self, way: str, *spans: EditSpan | None) -> None:
        self.ways[way] += 1
        self.spans += [s for s in spans if s is not None and s.text]

    def report_to(self, report: ImportReport, *, refused: bool) -> tuple[EditSpan, ...]:
        """Count these edits; the spans that count as applied, in the order of the response."""
        report.unrecognised += self.unrecognised
        if refused:
            report.refused += self.ways.total()
            return ()
        report.recognised += self.ways
        return tuple(sorted(self.spans, key=lambda s: (s.start, s.end)))


def span(response: str, start: int, end: int, path: str, kind: Any, line: int = 0) -> EditSpan:
    """The EditSpan of response[start:end]."""
    return EditSpan(path=path, kind=kind, text=response[start:end], start=start, end=end, line=max(0, line))


def render_call(thought: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
    """A response text for a step recorded as a thought and a tool call: (text, argument -> where its value starts).

    Recordings of function calls hold no response text; this writes one in which every argument stands verbatim.
    """
    text = thought.strip() + "\n\n" if thought.strip() else ""
    text += f"<function={name}>\n"
    starts = {}
    for key, value in arguments.items():
        if value is None or value == "":
            continue
        text += f"<parameter={key}>"
        starts[key] = len(text)
        text += (value if isinstance(value, str) else json.dumps(value)) + "</parameter>\n"
    return text + "</function>", starts


def relative(path: str, root: str) -> str:
    """`path` below the workspace folder `root`; unchanged where it lies elsewhere or is relative already."""
    path = path.strip().strip("\"'")
    root = root.rstrip("/")
    if root and path.startswith(root + "/"):
        path = path[len(root) + 1 :]
    return path.removeprefix("./")


REFUSED = re.compile(
    r"""\s*(ERROR\b|Error:|Usage:|usage:|Invalid\ |No\ file\ (is\ )?open|File\ .{1,200}\ (not\ found|does\ not\ exist)
    |Your\ proposed\ edit\ has\ introduced|No\ replacement\ was\ performed|Text\ .{0,400}not\ found|Failed\ to\ edit
    |.{0,80}sed:\ .*|.{0,80}:\ (No\ such\ file\ or\ directory|Permission\ denied)|The\ provided\ .{1,200}\ not\ found
    |.{0,200}command\ not\ found)""",
    re.VERBOSE | re.DOTALL,
)


def refused(observation: str) -> bool:
    """True where the environment's answer says that the edit was not applied."""
    return bool(REFUSED.match(observation)) or "Your changes have NOT been applied" in observation


def groups_of(runs: Iterable[tuple[str, Trajectory]]) -> list[TrajectoryGroup]:
    """Rollouts of the same task put together, in the order in which tasks and rollouts first appear."""
    groups: dict[str, TrajectoryGroup] = {}
    for task_id, trajectory in runs:
        group = groups.setdefault(task_id, TrajectoryGroup(task_id=task_id, trajectories=[], group_id=task_id))
        taken = {t.trajectory_id for t in group.trajectories}
        if trajectory.trajectory_id in taken:  # ids must tell rollouts apart: a copy from another file gets a number
            trajectory.trajectory_id = f"{trajectory.trajectory_id}#{len(taken)}"
        group.trajectories.append(trajectory)
    return list(groups.values())


def text_of(row: Mapping[str, Any], name: str, where: str, default: str | None = None) -> str:
    """A text field of a recorded row; UserError with the place where it is missing or no text."""
    value = row.get(name, default)
    if not isinstance(value, str):
        raise UserError(f"{where}: field {name!r} must be a text")
    return value


def load_json(path: Path) -> Any:
    """The JSON value in a file; UserError where it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON, broken or cut off ({error})") from error
