"""Run untrusted programs and grade them: `open_sandbox()` gives a `Sandbox`; see docs/sandbox.md."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Literal

from didpo.errors import unknown_name
from didpo.sandbox import grade as grading
from didpo.sandbox import shell as shells
from didpo.sandbox.canaries import choose, probe
from didpo.sandbox.pool import Pool, WorkerFailed
from didpo.sandbox.results import (
    LEVELS,
    SHELL_LIMITS,
    Canary,
    CommandResult,
    Level,
    Limits,
    SandboxReport,
    TestResult,
    Verdict,
)
from didpo.sandbox.shell import Shell
from didpo.types import Files, StdioTest, Test

__all__ = [
    "LEVELS",
    "Canary",
    "CommandResult",
    "Level",
    "Limits",
    "Sandbox",
    "SandboxReport",
    "Shell",
    "TestResult",
    "Verdict",
    "open_sandbox",
    "probe",
]

Mode = Literal["batch", "fork"]


class Sandbox:
    """Programs run at `level`, `workers` at a time. Thread-safe; close it, or use it in a `with` block."""

    def __init__(self, level: Level, workers: int, limits: Limits) -> None:
        self.level: Level = level
        self.limits = limits
        self._pool = Pool(level, workers)
        self._shells = Pool(level, workers, shell=True)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="didpo-sandbox")

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown()
        self._pool.close()
        self._shells.close()

    def grade(
        self, files: Files, tests: Sequence[Test], *, mode: Mode = "batch", limits: Limits | None = None
    ) -> dict[str, TestResult]:
        """Verdicts by test name, one for every test.

        `mode` "batch": the cases of a program share a child process, and a case that fails is run again in its own;
        "fork": every case has its own. Raises UserError for an empty or ambiguous test list.
        """
        grading.check(files, tests)
        limits = limits or self.limits
        cases = [grading.to_case(t, files) for t in tests]
        outcomes = self._ask(files, cases, limits, mode, grading.preload(files, tests))
        return {t.name: self._result(t, o, limits) for t, o in zip(tests, outcomes, strict=True)}

    def _ask(self, files: Files, cases: list[Any], limits: Limits, mode: Mode, preload: list[str]) -> list[Any]:
        if mode not in ("batch", "fork"):
            raise unknown_name("mode", mode, ("batch", "fork"))
        wall = limits.wall
        sent = {**asdict(limits), "wall_s": wall}
        request = {"op": "grade", "files": dict(files), "cases": cases, "limits": sent, "mode": mode}
        try:
            answer = self._pool.ask({**request, "preload": preload}, timeout=limits.program_s + 2 * wall + 30.0)
        except WorkerFailed as failure:
            return [{"status": "lost", "detail": str(failure)}] * len(cases)
        return list(answer)

    def _result(self, test: Test, outcome: dict[str, Any], limits: Limits) -> TestResult:
        if not (isinstance(test, StdioTest) and test.checker is not None and outcome["status"] == "returned"):
            return grading.to_result(test, outcome, limits)
        files, case = grading.checker_request(test, outcome)
        (verdict,) = self._ask(files, [case], limits, "fork", [])
        return grading.checker_result(test, verdict, outcome["cpu"])

    def grade_many(
        self,
        requests: Sequence[tuple[Files, Sequence[Test]]],
        *,
        mode: Mode = "batch",
        limits: Limits | None = None,
    ) -> list[dict[str, TestResult]]:
        """`grade` of many programs, as many at a time as there are workers; results in the order of the requests."""
        return list(self._threads.map(lambda r: self.grade(r[0], r[1], mode=mode, limits=limits), requests))

    async def grade_async(
        self, files: Files, tests: Sequence[Test], *, mode: Mode = "batch", limits: Limits | None = None
    ) -> dict[str, TestResult]:
        """`grade` for callers in an event loop. The deadline is that of the limits (`program_s`), held by the worker:
        cancelling the call does not leave the program running beyond it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: self.grade(files, tests, mode=mode, limits=limits))

    def run_command(self, files: Files, command: str, *, limits: Limits | None = None) -> CommandResult:
        """One shell command in a copy of the workspace, which is gone afterwards."""
        limits = limits or SHELL_LIMITS
        request = shells.command_request(files, command, limits)
        try:
            answer = self._shells.ask(request, shells.command_timeout(limits))
        except WorkerFailed as failure:
            return shells.failed_command(files, failure)
        return shells.command_result(answer, limits)

    def shell(self, files: Files, *, limits: Limits | None = None) -> Shell:
        """A shell with a workspace of its own, for one rollout. Raises WorkerFailed if it cannot be started."""
        return Shell(self.level, files, limits or SHELL_LIMITS)


def open_sandbox(
    *,
    require: Level = "filtered",
    level: Level | None = None,
    workers: int = 2,
    limits: Limits | None = None,
) -> Sandbox:
    """The strongest sandbox this machine offers, or the one named by `level`; canaries decide what that is.

    Raises UserError if it is weaker than `require`: a plain process is used only where `require="process"` says so.
    """
    return Sandbox(choose(require, level), workers, limits or Limits())
