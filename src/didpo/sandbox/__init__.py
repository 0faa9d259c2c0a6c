"""Run untrusted programs and grade them: `open_sandbox()` gives a `Sandbox`; see docs/sandbox.md."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Literal

from didpo.errors import UserError, unknown_name
from didpo.sandbox import grade as grading
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
from didpo.types import Files, Test

__all__ = [
    "LEVELS",
    "Canary",
    "CommandResult",
    "Level",
    "Limits",
    "Sandbox",
    "SandboxReport",
    "TestResult",
    "Verdict",
    "open_sandbox",
]

Mode = Literal["batch", "fork"]


class Sandbox:
    """Programs run at `level`, `workers` at a time. Thread-safe; close it, or use it in a `with` block."""

    def __init__(self, level: Level, workers: int, limits: Limits) -> None:
        self.level: Level = level
        self.limits = limits
        self._pool = Pool(level, workers)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="didpo-sandbox")

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown()
        self._pool.close()

    def grade(
        self, files: Files, tests: Sequence[Test], *, mode: Mode = "batch", limits: Limits | None = None
    ) -> dict[str, TestResult]:
        """Verdicts by test name, one for every test.

        `mode` "batch": the cases of a program share a child process, and a case that fails is run again in its own;
        "fork": every case has its own. Raises UserError for an empty or ambiguous test list.
        """
        grading.check(files, tests)
        limits = limits or self.limits
        request = _request(files, [grading.to_case(t) for t in tests], limits, mode, grading.preload(files, tests))
        try:
            outcomes = self._pool.ask(request, timeout=2 * limits.program_s + limits.wall + 30.0)
        except WorkerFailed as failure:
            outcomes = [{"status": "lost", "detail": str(failure)}] * len(tests)
        return {t.name: grading.to_result(t, o, limits) for t, o in zip(tests, outcomes, strict=True)}

    def grade_many(
        self,
        requests: Sequence[tuple[Files, Sequence[Test]]],
        *,
        mode: Mode = "batch",
        limits: Limits | None = None,
    ) -> list[dict[str, TestResult]]:
        """`grade` of many programs, as many at a time as there are workers; results in the order of the requests."""
        return list(self._threads.map(lambda r: self.grade(r[0], r[1], mode=mode, limits=limits), requests))


def _request(files: Files, cases: list[Any], limits: Limits, mode: Mode, preload: list[str]) -> dict[str, Any]:
    if mode not in ("batch", "fork"):
        raise unknown_name("mode", mode, ("batch", "fork"))
    sent = {**asdict(limits), "wall_s": limits.wall}
    return {"op": "grade", "files": dict(files), "cases": cases, "limits": sent, "mode": mode, "preload": preload}


def open_sandbox(*, require: Level = "filtered", workers: int = 2, limits: Limits | None = None) -> Sandbox:
    """The strongest sandbox this machine offers. Raises UserError if that is weaker than `require`."""
    return Sandbox("process", workers, limits or Limits())
