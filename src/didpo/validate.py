"""Checks a set of problems before it gives rewards: right programs must pass, wrong ones must fail.

`validate` runs the reference solution of every task and programs made wrong on purpose, and names the tests that
reject right code and the tasks that accept wrong code. `judge` compares verdicts with recorded ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from didpo.errors import UserError
from didpo.mutants import PATH, mutants
from didpo.progress import Progress, SilentProgress
from didpo.sandbox import Limits, Sandbox, TestResult, Verdict
from didpo.tasks.benchmarks import load_benchmark
from didpo.tasks.known import KNOWN
from didpo.tasks.reading import LoadReport, read_records
from didpo.types import Task

Mode = Literal["batch", "fork"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A program whose verdict is not what it should be. `tests` are those that decided; `reason` is the verdict and
    detail of the first of them; `explained` says why, where that is known."""

    task_id: str
    program: str  # "reference", the name of a mutant, or where a recorded program came from
    tests: tuple[str, ...] = ()
    reason: str = ""
    explained: str = ""


@dataclass(kw_only=True)
class ValidationReport:
    """passed of total references; `rejected` references, `accepted_mutants` of `mutants`, `unjudged` programs (the
    sandbox failed, which says nothing about the program), `reasons`: verdict -> rejected references."""

    benchmark: str
    passed: int = 0
    total: int = 0
    without_reference: int = 0
    mutants: int = 0
    rejected: list[Finding] = field(default_factory=list)
    accepted_mutants: list[Finding] = field(default_factory=list)
    unjudged: list[Finding] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    level: str = ""
    seconds: float = 0.0

    @property
    def unexplained(self) -> list[Finding]:
        """Rejected references whose reason is not known."""
        return [f for f in self.rejected if not f.explained]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "unexplained": [f.task_id for f in self.unexplained]}

    def __str__(self) -> str:
        lines = [
            f"{self.benchmark}: {self.passed} of {self.total} references pass, {len(self.accepted_mutants)} of "
            f"{self.mutants} wrong programs are accepted ({self.seconds:.0f} s, {self.level})"
        ]
        lines += [
            f"  rejected {f.task_id}: {f.explained or f.reason} [{', '.join(f.tests[:3])}]" for f in self.rejected
        ]
        lines += [f"  accepted {f.task_id}: {f.program}" for f in self.accepted_mutants]
        lines += [f"  unjudged {f.task_id}: {f.program}: {f.reason}" for f in self.unjudged]
        lines += [f"  left out {count}: {reason}" for reason, count in self.skipped.items()]
        return "\n".join(lines)


def validate(
    benchmark: str,
    data_dir: str | Path,
    sandbox: Sandbox,
    *,
    with_mutants: bool = True,
    mode: Mode = "batch",
    limits: Limits | None = None,
    workers: int = 2,
    progress: Progress | None = None,
    **filters: Any,
) -> ValidationReport:
    """Run the references and mutants of a set; `filters` are those of `didpo.tasks.pools.select`. Raises UserError as
    `load_benchmark` does, and where no task of the set has a reference."""
    tasks, loaded = load_benchmark(benchmark, data_dir, several=filters.pop("several", True), **filters)
    return validate_tasks(
        tasks,
        sandbox,
        loaded=loaded,
        with_mutants=with_mutants,
        mode=mode,
        limits=limits,
        workers=workers,
        progress=progress,
    )


def validate_tasks(
    tasks: Sequence[Task],
    sandbox: Sandbox,
    *,
    loaded: LoadReport,
    with_mutants: bool = True,
    mode: Mode = "batch",
    limits: Limits | None = None,
    workers: int = 2,
    progress: Progress | None = None,
) -> ValidationReport:
    """The same for tasks at hand."""
    progress = progress or SilentProgress()
    started = time.monotonic()
    checked = [t for t in tasks if t.reference is not None]
    report = ValidationReport(benchmark=loaded.benchmark, skipped=dict(loaded.skipped), level=sandbox.level)
    report.without_reference = len(tasks) - len(checked)
    if not checked and not with_mutants:
        raise UserError(f"{loaded.benchmark}: no task has a reference solution; there is nothing to validate")
    progress.phase(f"programs of {loaded.benchmark}, by task", len(tasks))
    with ThreadPoolExecutor(workers) as threads:
        todo = ((t, _programs(t, with_mutants)) for t in tasks)  # made here: parsing is not for several threads
        for found in threads.map(lambda pair: _check(pair[0], pair[1], sandbox, mode, limits), todo):
            _count(report, found)
            progress.advance()
    report.seconds = time.monotonic() - started
    return report


Outcome = tuple[Task, str, dict[str, TestResult]]


def _programs(task: Task, with_mutants: bool) -> list[tuple[str, str]]:
    reference = [("reference", task.reference[PATH])] if task.reference else []
    return reference + (list(mutants(task)) if with_mutants else [])


def _check(
    task: Task, programs: Iterable[tuple[str, str]], sandbox: Sandbox, mode: Mode, limits: Limits | None
) -> list[Outcome]:
    """Verdicts of the programs. A reference that runs out of time is judged once more, each case on its own and with
    time for every one, so that a busy machine or a long list of cases rejects nothing."""
    outcomes = []
    for name, code in programs:
        files = {**task.files, **(task.reference or {}), PATH: code}
        results = sandbox.grade(files, task.tests, mode=mode, limits=limits)
        late = [t for t in task.tests if results[t.name].verdict is Verdict.TIMEOUT]
        if name == "reference" and late:
            usual = limits or sandbox.limits
            patient = replace(usual, program_s=max(usual.program_s, usual.wall * len(late)))
            results = {**results, **sandbox.grade(files, late, mode="fork", limits=patient)}
        outcomes.append((task, name, results))
    return outcomes


def _count(report: ValidationReport, outcomes: Iterable[Outcome]) -> None:
    for task, program, results in outcomes:
        finding = _finding(report.benchmark, task, program, results)
        if any(r.verdict is Verdict.SANDBOX_ERROR for r in results.values()):
            report.unjudged.append(finding)
        elif program != "reference":
            report.mutants += 1
            if passes(results):
                report.accepted_mutants.append(finding)
        else:
            report.total += 1
            if passes(results):
                report.passed += 1
            else:
                report.rejected.append(finding)
                verdict = finding.reason.partition(":")[0]
                report.reasons[verdict] = report.reasons.get(verdict, 0) + 1


def passes(results: Mapping[str, TestResult]) -> bool:
    """True where there are tests and every one was passed."""
    return bool(results) and all(r.passed for r in results.values())


def _finding(benchmark: str, task: Task, program: str, results: Mapping[str, TestResult]) -> Finding:
    failed = [r for r in results.values() if not r.passed]
    first = min(failed, key=lambda r: r.verdict is not Verdict.SANDBOX_ERROR, default=None)
    return Finding(
        task_id=task.task_id,
        program=program,
        tests=tuple(r.name for r in failed),
        reason=f"{first.verdict.value}: {first.detail}" if first else "passed",
        explained=KNOWN.get(benchmark, {}).get(task.task_id, ""),
    )


# ---------------------------------------------------------------- recorded verdicts


@dataclass(frozen=True, kw_only=True)
class Graded:
    """A program with the verdict that somebody else's judge recorded."""

    task_id: str
    code: str
    right: bool
    label: str


def read_graded(path: Path, prefix: str) -> Iterator[Graded]:
    """Records {question_id or problem_id, code, graded or result}; only the value true means right."""
    for i, row in enumerate(read_records(path)):
        number = row.get("question_id", row.get("problem_id"))
        verdict = row.get("graded", row.get("result"))
        label = f"{row.get('model') or row.get('kind') or 'program'} #{i}"
        yield Graded(task_id=f"{prefix}/{number}", code=str(row["code"]), right=verdict is True, label=label)


def judge(
    benchmark: str,
    tasks: Sequence[Task],
    programs: Iterable[Graded],
    sandbox: Sandbox,
    *,
    limits: Limits | None = None,
    workers: int = 2,
) -> tuple[int, list[Finding]]:
    """How many programs were judged, and those whose verdict differs from the recorded one. A program for a task that
    is not among `tasks` raises UserError."""
    by_id = {t.task_id: t for t in tasks}
    todo = list(programs)
    for program in todo:
        if program.task_id not in by_id:
            raise UserError(f"{program.label} is for {program.task_id}, which is not among the tasks given")

    def run(program: Graded) -> Finding | None:
        task = by_id[program.task_id]
        results = sandbox.grade({**task.files, PATH: program.code}, task.tests, limits=limits)
        if passes(results) == program.right and not any(r.verdict is Verdict.SANDBOX_ERROR for r in results.values()):
            return None
        return _finding(benchmark, task, f"{program.label} ({'right' if program.right else 'wrong'})", results)

    with ThreadPoolExecutor(workers) as threads:
        return len(todo), [f for f in threads.map(run, todo) if f is not None]
