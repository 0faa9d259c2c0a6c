"""DiDPO: train multi-turn coding agents with credit for each part of an edit."""

from didpo.errors import UserError
from didpo.types import (
    Anchor,
    AnchorMember,
    AssertTest,
    CallTest,
    EditSpan,
    GroupCredit,
    PytestTest,
    StdioTest,
    Step,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
)

__version__ = "0.1.0"

__all__ = [
    "Anchor",
    "AnchorMember",
    "AssertTest",
    "CallTest",
    "EditSpan",
    "GroupCredit",
    "PytestTest",
    "StdioTest",
    "Step",
    "StopReason",
    "Task",
    "Trajectory",
    "TrajectoryGroup",
    "UserError",
    "__version__",
]
