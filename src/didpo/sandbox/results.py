"""What callers of the sandbox see: limits, verdicts, results."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Level = Literal["namespaced", "filtered", "process"]
LEVELS: tuple[Level, ...] = ("process", "filtered", "namespaced")  # weakest first


class Verdict(StrEnum):
    PASSED = "passed"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    SANDBOX_ERROR = "sandbox_error"  # the verifier failed, not the program: never a reward


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one case (a test, or a shell command).

    `cpu_s`: CPU seconds. `wall_s`: cap on elapsed seconds; None means `2 * cpu_s + 0.5`, times the load per processor
    where the machine is overloaded, so that a program is not judged by its neighbours. `memory_mb`: MiB of
    address space on top of what the interpreter itself takes. `output_bytes`: of standard output, and of standard
    error. `file_bytes`: of any one file. `disk_bytes`: of all files together. `processes`: how many a program may
    start (grading: 0). `program_s`: elapsed seconds for all cases of one program; cases that it leaves no time for are
    reported as time-outs that did not run.
    """

    cpu_s: float = 8.0
    wall_s: float | None = None
    memory_mb: int = 2048
    output_bytes: int = 4 << 20
    file_bytes: int = 16 << 20
    disk_bytes: int = 64 << 20
    processes: int = 0
    program_s: float = 120.0

    @property
    def wall(self) -> float:
        """The cap on elapsed seconds that holds now."""
        if self.wall_s is not None:
            return self.wall_s
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        return (2 * self.cpu_s + 0.5) * min(10.0, max(1.0, load))


SHELL_LIMITS = Limits(cpu_s=30.0, wall_s=30.0, output_bytes=64 << 10, processes=64)


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """The verdict on one test. `detail` is one short line: what was returned, which exception, which limit."""

    __test__ = False  # not a test class

    name: str
    verdict: Verdict
    detail: str = ""
    cpu_s: float = 0.0

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASSED


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """A shell command: `output` holds standard output and error as they came; `files` the workspace afterwards."""

    output: str
    exit_code: int
    verdict: Verdict
    files: dict[str, str]
    cpu_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Canary:
    """One forbidden thing that was tried inside the sandbox. `contained`: it did not work."""

    name: str
    contained: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class SandboxReport:
    """What this machine offers: the best level whose canaries were all contained, and how to reach a higher one."""

    level: Level
    canaries: list[Canary] = field(default_factory=list)
    hint: str = ""
