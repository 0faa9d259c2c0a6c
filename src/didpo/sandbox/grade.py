"""From tests to cases that hold no expected output, and from outcomes to verdicts. Trusted, outside the sandbox."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from didpo.errors import UserError
from didpo.sandbox import wire
from didpo.sandbox.judge import equal_output, equal_values, shorten
from didpo.sandbox.junit import judge_report
from didpo.sandbox.results import Limits, TestResult, Verdict
from didpo.types import AssertTest, CallTest, Files, PytestTest, StdioTest, Test

_PRELOAD = ("numpy", "pandas")  # worth having warm: each costs over 0.1 s to import
_CONFIGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_STEERING = ("conftest.py", "sitecustomize.py", "usercustomize.py")
_STATUS = {
    "timeout": Verdict.TIMEOUT,
    "memory": Verdict.MEMORY,
    "output": Verdict.OUTPUT_LIMIT,
    "failed": Verdict.WRONG_ANSWER,
    "opaque": Verdict.WRONG_ANSWER,
    "disk": Verdict.OUTPUT_LIMIT,
    "lost": Verdict.SANDBOX_ERROR,
}


def check(files: Files, tests: Sequence[Test]) -> None:
    """Mistakes of the caller, before anything runs."""
    if not tests:
        raise UserError("there are no tests to grade with; a program without tests cannot pass")
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"two tests are named {twice!r}; give each test its own name")
    check_paths(files)
    for test in tests:
        if isinstance(test, PytestTest):
            check_paths(test.files)
            if importlib.util.find_spec("pytest") is None:
                raise UserError(f"test {test.name!r} needs pytest: pip install pytest")


def check_paths(files: Files) -> None:
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\0" in path or path.endswith("/"):
            raise UserError(f"file path {path!r} must be relative and stay inside the workspace")


def to_case(test: Test, files: Files) -> dict[str, Any]:
    """What the sandbox gets to know of a test: never the expected output."""
    if isinstance(test, CallTest):
        try:
            args = wire.encode(list(test.args))
        except wire.Unsendable as refused:
            raise UserError(f"test {test.name!r}: an argument is {refused}; use plain values") from None
        return {"kind": "call", "path": test.path, "function": test.function, "args": args}
    if isinstance(test, StdioTest):
        return {"kind": "stdio", "path": test.path, "stdin": test.stdin}
    if isinstance(test, AssertTest):
        return {"kind": "assert", "path": test.path, "code": test.code}
    return {"kind": "pytest", "node": test.node, "files": pristine(files, test), "config": _config(test)}


def pristine(files: Files, test: PytestTest) -> dict[str, str]:
    """The workspace with the test's own files put back, and without files that would steer the runner."""
    kept = {p: text for p, text in files.items() if PurePosixPath(p).name not in _STEERING}
    return {**kept, **test.files}


def _config(test: PytestTest) -> str:
    """The runner's configuration: one of the test's own files, or none."""
    return next((name for name in _CONFIGS if name in test.files), "")


def preload(files: Files, tests: Sequence[Test]) -> list[str]:
    """Heavy libraries that the program or its tests import."""
    texts = [*files.values(), *(t.code for t in tests if isinstance(t, AssertTest))]
    found = [n for n in _PRELOAD if any(n in t and re.search(rf"^\s*(import|from)\s+{n}\b", t, re.M) for t in texts)]
    return found + (["pytest"] if any(isinstance(t, PytestTest) for t in tests) else [])


def to_result(test: Test, outcome: dict[str, Any], limits: Limits) -> TestResult:
    """The verdict on a case that needs no further program."""
    verdict, detail = _verdict(test, outcome, limits)
    return TestResult(name=test.name, verdict=verdict, detail=shorten(detail), cpu_s=float(outcome.get("cpu", 0.0)))


def _verdict(test: Test, outcome: dict[str, Any], limits: Limits) -> tuple[Verdict, str]:
    status, detail = outcome["status"], str(outcome.get("detail", ""))
    if status == "returned":
        if isinstance(test, CallTest):
            return _judge_call(test, outcome)
        if isinstance(test, StdioTest):
            return _judge_output(test, str(outcome.get("out", "")))
        if isinstance(test, PytestTest):
            return judge_report(test.node, str(outcome.get("xml", "")), int(outcome.get("exit", -1)))
        return Verdict.PASSED, ""
    if status == "disk":
        detail = f"wrote more than {limits.disk_bytes} bytes of files"
    if status == "output":
        detail = f"printed more than {limits.output_bytes} bytes; the rest was cut off"
    if status == "memory" and not detail:
        detail = f"used more than {limits.memory_mb} MiB of memory"
    if status == "opaque":
        detail = f"returned {detail}"
    return _STATUS.get(status, Verdict.RUNTIME_ERROR), detail


def _judge_call(test: CallTest, outcome: dict[str, Any]) -> tuple[Verdict, str]:
    try:
        got = wire.decode(outcome["value"])
        right = equal_values(got, test.expected)
    except (ValueError, TypeError, KeyError, RecursionError, wire.Unsendable):
        return Verdict.RUNTIME_ERROR, "the program wrote over its results"
    if right:
        return Verdict.PASSED, ""
    call = f"{test.function}({', '.join(shorten(_show(a), 40) for a in test.args)})"
    shown = f"{shorten(call, 70)} returned {shorten(_show(got), 60)}"
    return Verdict.WRONG_ANSWER, f"{shown}, expected {shorten(_show(test.expected), 60)}"


def _show(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return "a very large number"


def _judge_output(test: StdioTest, out: str) -> tuple[Verdict, str]:
    if equal_output(out, test.expected, test.compare):
        return Verdict.PASSED, ""
    return (
        Verdict.WRONG_ANSWER,
        f"printed {shorten(repr(out[:200]), 60)}, expected {shorten(repr(test.expected[:200]), 60)}",
    )


def checker_request(test: StdioTest, outcome: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Files and case of the test's own checker; the program that it judges has ended by then."""
    assert test.checker is not None
    files = {"checker.py": test.checker, "input": test.stdin, "expected": test.expected, "output": outcome["out"]}
    return files, {"kind": "stdio", "path": "checker.py", "stdin": "", "argv": ["input", "expected", "output"]}


def checker_result(test: StdioTest, verdict: dict[str, Any], cpu_s: float) -> TestResult:
    """A checker accepts by ending well and rejects by failing; one that hits a limit has not judged."""
    if verdict["status"] == "returned":
        return TestResult(name=test.name, verdict=Verdict.PASSED, cpu_s=cpu_s)
    detail = shorten(str(verdict.get("detail", "")))
    if verdict["status"] == "raised":
        said = f"rejected by the checker: {detail}"
        return TestResult(name=test.name, verdict=Verdict.WRONG_ANSWER, detail=said, cpu_s=cpu_s)
    said = f"the checker failed ({verdict['status']}): {detail}"
    return TestResult(name=test.name, verdict=Verdict.SANDBOX_ERROR, detail=said, cpu_s=cpu_s)
