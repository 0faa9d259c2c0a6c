"""Small groups for the credit tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from didpo.types import EditSpan, GroupCredit, Step, StopReason, Trajectory, TrajectoryGroup


def plain(rewards: list[float], *, failed: tuple[int, ...] = (), text: str = "abc") -> TrajectoryGroup:
    """Single-step rollouts with the given rewards, without edits."""
    return TrajectoryGroup(
        task_id="t",
        trajectories=[
            Trajectory(
                steps=[Step(response=text, reward=r)],
                stop_reason=StopReason.SANDBOX_ERROR if i in failed else StopReason.FINISHED,
            )
            for i, r in enumerate(rewards)
        ],
    )


def whole_file(code: str, *, before: str | None = "", path: str = "main.py", think: str = "", **fields: Any) -> Step:
    """A step that writes the whole file; one token per character."""
    head = f"{think}<edit {path}>\n<code>\n"
    response = f"{head}{code}</code>\n</edit>"
    span = EditSpan(path=path, kind="overwrite", text=code, start=len(head), end=len(head) + len(code))
    return Step(
        response=response,
        files_before=None if before is None else {path: before},
        files_after={path: code},
        edits=(span,),
        action="edit",
        **fields,
    )


def firsts(credit: GroupCredit) -> list[float]:
    """The first token's advantage of each row."""
    return [float(a[0]) for row in credit.advantages for a in row]


def rows(arrays: list[list[np.ndarray]]) -> list[bytes]:
    return [a.tobytes() for row in arrays for a in row]


def on_text(credit: GroupCredit, group: TrajectoryGroup, g: int, s: int, text: str, part: str = "diff") -> np.ndarray:
    """The values of a part on the characters of `text` in a response (one token per character)."""
    at = group.trajectories[g].steps[s].response.index(text)
    return credit.parts[part][g][s][at : at + len(text)]
